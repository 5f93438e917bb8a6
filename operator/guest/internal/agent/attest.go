package agent

import (
	"context"
	"errors"
	"net/http"
	"time"

	"cloister.dev/guest/internal/attestation"
)

// Stages in which evidence is asked for.
const (
	stageCPU = "cpu-attestation"
	stageGPU = "gpu-attestation"
)

const (
	// evidenceWithin is the time that the attestation service of the machine has to answer
	// well: it may start later than the Pod.
	evidenceTimeout = time.Minute
	evidenceEvery   = 2 * time.Second
	documentEvery   = 5 * time.Second
)

// evidenceCheck is one question for evidence.
type evidenceCheck func(context.Context) (attestation.CheckResult, error)

// attest carries out the stages of attestation and keeps attestation.json, until the
// context ends. Both ask another process, so that the loop does not wait for them.
func (a *agent) attest(ctx context.Context) {
	if a.spec.Attestation == nil {
		return
	}
	attester, err := attestation.New(*a.spec.Attestation)
	if err != nil {
		a.settleEvidence(stageCPU, attestation.CheckResult{}, err)
		return
	}
	a.attester.Store(attester)
	for stage, ask := range map[string]evidenceCheck{stageCPU: attester.CheckCPU, stageGPU: attester.CheckGPU} {
		if a.spec.Stages[stage].Evidence {
			go a.awaitEvidence(ctx, stage, ask)
		}
	}
	go a.writeAttestation(ctx, attester)
}

// awaitEvidence asks until there is evidence or the time is over.
func (a *agent) awaitEvidence(ctx context.Context, stage string, ask evidenceCheck) {
	deadline := time.Now().Add(a.evidenceTimeout)
	for {
		checked, err := ask(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil || time.Now().After(deadline) {
			a.settleEvidence(stage, checked, err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(evidenceEvery):
		}
	}
}

func (a *agent) settleEvidence(stage string, checked attestation.CheckResult, err error) {
	a.mutex.Lock()
	boot, now := &a.state.Boot, time.Now().UTC()
	switch {
	case err != nil:
		boot.fail(stage, reasonBoot, "Stage "+stage+": "+err.Error(), now)
	case checked.Skipped:
		boot.settle(stage, statusSkipped, checked.Detail, now)
	default:
		boot.settle(stage, statusOK, checked.Detail, now)
	}
	a.mutex.Unlock()
	a.signal()
}

// writeAttestation writes attestation.json whenever the TLS key is another one.
func (a *agent) writeAttestation(ctx context.Context, attester *attestation.Attester) {
	told := ""
	for {
		err := attester.Write(ctx, a.spec.ServiceDirectory)
		if err != nil && !errors.Is(err, attestation.ErrNoKey) && ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			a.log.Warn("the attestation document is not written", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(documentEvery):
		}
	}
}

// serveAttestation answers the attestation document.
func (a *agent) serveAttestation(response http.ResponseWriter, request *http.Request) {
	attester := a.attester.Load()
	if attester == nil {
		writeError(response, http.StatusServiceUnavailable, "There is no attestation document; the boot stages say why.", "server_error")
		return
	}
	attester.ServeHTTP(response, request)
}
