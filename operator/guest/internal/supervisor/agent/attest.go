package agent

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"cloister.dev/guest/internal/evidence/attestation"
	"cloister.dev/guest/internal/foundation/measured"
	"cloister.dev/guest/internal/foundation/paths"
	"cloister.dev/guest/internal/frontdoor/certificate"
)

// Stages in which evidence is requested.
const (
	stageCPU = "cpu-attestation"
	stageGPU = "gpu-attestation"
)

const (
	// evidenceTimeout is how long the attestation service of the machine may take to give
	// evidence: it may start later than the Pod.
	evidenceTimeout = time.Minute
	evidenceEvery   = 2 * time.Second
	// documentFirst is the pause before attestation.json is tried a second time, and doubles until it is
	// there: the TLS key is made late in the boot.
	documentFirst = 200 * time.Millisecond
	// documentEvery is how often the file with the key's fingerprint is read again, and presentedEvery
	// how often the shim is asked for its key, by a handshake: it makes another one in hours.
	documentEvery  = 5 * time.Second
	presentedEvery = time.Minute
)

// evidenceCheck requests and checks evidence once.
type evidenceCheck func(context.Context) (attestation.CheckResult, error)

// attest runs the attestation stages and keeps attestation.json up to date until the
// context is done. Both query another process, so the loop does not wait for them.
func (a *agent) attest(ctx context.Context) {
	if a.spec.Attestation == nil {
		return
	}
	// The keys' paths are in no document: nothing but these keys can be bound.
	attester, err := a.attesterOf(measured.Root(), paths.FingerprintFile, paths.BodiesPublicKey)
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

// attesterOf returns what creates attestation documents: for the measurement in the guest's directory,
// and for the TLS key whose fingerprint is in a file, else for those that the shim presents; with encrypted
// bodies also for their public key, in another file. The collateral is next to the fingerprint.
func (a *agent) attesterOf(directory, fingerprint, bodies string) (*attestation.Attester, error) {
	about, measurement := *a.spec.Attestation, a.spec.Measurement
	settings := attestation.Settings{
		Name: measurement.Service, TEE: measurement.Host.TEE, Service: about.Service, GPUs: measurement.GPUs, Measurement: measurement.Text(),
		Collateral: filepath.Join(filepath.Dir(fingerprint), certificate.CollateralFile), Shim: a.spec.Shim, Hostnames: a.spec.Unmeasured.Hostnames,
	}
	if a.spec.BodiesSocket != "" {
		settings.HPKE = bodies
	}
	if about.BindsKey {
		settings.Key = fingerprint
	}
	if measurement.Host.TEEUnit == "Pod" {
		initdata, err := os.ReadFile(filepath.Join(directory, measured.InitdataName))
		if err != nil {
			return nil, err
		}
		settings.Initdata = initdata
	}
	return attestation.New(settings)
}

// awaitEvidence retries until there is evidence or evidenceTimeout has passed.
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

// writeAttestation writes attestation.json whenever the TLS key has changed.
func (a *agent) writeAttestation(ctx context.Context, attester *attestation.Attester) {
	message, pause := "", documentFirst
	for {
		err := attester.Write(ctx, a.spec.ServiceDirectory)
		if err != nil && !errors.Is(err, attestation.ErrNoKey) && ctx.Err() == nil && err.Error() != message {
			message = err.Error()
			a.log.Warn("the attestation document is not written", "error", err)
		}
		if err == nil {
			pause = presentedEvery
			if a.spec.Attestation.BindsKey {
				pause = documentEvery
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if err != nil {
			pause = min(2*pause, documentEvery)
		}
	}
}

// serveAttestation serves the attestation document.
func (a *agent) serveAttestation(response http.ResponseWriter, request *http.Request) {
	attester := a.attester.Load()
	if attester == nil {
		writeError(response, http.StatusServiceUnavailable, "There is no attestation document; see the boot stages for the reason.", "server_error")
		return
	}
	attester.ServeHTTP(response, request)
}

// serveCertificate serves the certificate that the shim presents for the request's host name. A verifier in a
// page of a browser cannot see that of its connection; what it gets here proves nothing without the evidence.
func (a *agent) serveCertificate(response http.ResponseWriter, request *http.Request) {
	leaf, err := attestation.Presented(request.Context(), a.spec.Shim, a.spec.Unmeasured.Hostnames, attestation.HostOf(request))
	if err != nil {
		writeError(response, http.StatusServiceUnavailable, "The shim presents no certificate yet; try again in a moment.", "server_error")
		return
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw})
	write(response, http.StatusOK, map[string]string{"certificate": string(text)})
}
