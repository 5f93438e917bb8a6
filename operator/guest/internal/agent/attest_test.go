package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloister.dev/guest/internal/attestation"
)

// attesting returns an agent of an enclave without a TEE.
func attesting(t *testing.T, change func(*attestation.Settings)) *agent {
	t.Helper()
	directory := t.TempDir()
	measurement := filepath.Join(directory, "measurement.json")
	if err := os.WriteFile(measurement, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("{}"))
	settings := attestation.Settings{
		TEE: attestation.TEENone, Key: filepath.Join(directory, "tls.spki"),
		Measurement: attestation.File{Path: measurement, Digest: "sha256:" + hex.EncodeToString(sum[:])},
	}
	if change != nil {
		change(&settings)
	}
	spec := valid()
	spec.ServiceDirectory, spec.Attestation = t.TempDir(), &settings
	spec.Stages[stageCPU], spec.Stages[stageGPU] = Rule{Evidence: true}, Rule{Evidence: true}
	if err := spec.Validate(); err != nil {
		t.Fatal(err)
	}
	return &agent{spec: spec, log: slog.New(slog.DiscardHandler), changed: make(chan struct{}, 1), state: state{Boot: *newBoot()}}
}

// outcomeOf waits until a stage has ended.
func (a *agent) outcomeOf(t *testing.T, stage string) outcome {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		a.mutex.Lock()
		found, known := a.state.Boot.Outcomes[stage]
		a.mutex.Unlock()
		if known {
			return found
		}
		select {
		case <-deadline:
			t.Fatalf("stage %s is not over", stage)
		case <-a.changed:
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (a *agent) asked(t *testing.T, path string) (int, string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	a.servePublic(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return recorder.Code, recorder.Body.String()
}

const attestationPath = wellKnown + "cloister-attestation"

func TestWithoutATEEAttestationIsSkippedWithAReason(t *testing.T) {
	a := attesting(t, nil)
	if err := os.WriteFile(a.spec.Attestation.Key, []byte(strings.Repeat("1", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, body := a.asked(t, attestationPath); code != http.StatusServiceUnavailable || !strings.Contains(body, "boot stages") {
		t.Errorf("before the start: %d %s", code, body)
	}
	a.attest(t.Context())
	for _, stage := range []string{stageCPU, stageGPU} {
		if found := a.outcomeOf(t, stage); found.Status != statusSkipped || found.Detail == "" {
			t.Errorf("%s: %+v", stage, found)
		}
	}
	code, body := a.asked(t, attestationPath+"?nonce="+strings.Repeat("00", 32))
	if code != http.StatusOK || !strings.Contains(body, "dummy/v2") {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := a.asked(t, attestationPath+"?nonce=00"); code != http.StatusBadRequest {
		t.Errorf("a bad nonce: %d", code)
	}
	written := filepath.Join(a.spec.ServiceDirectory, attestation.FileName)
	for deadline := time.Now().Add(time.Minute); ; {
		if content, err := os.ReadFile(written); err == nil {
			if !strings.Contains(string(content), "dummy/v2") {
				t.Errorf("%s", content)
			}
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
		select {
		case <-a.changed:
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestAMachineWithoutEvidenceFailsTheBoot(t *testing.T) {
	a := attesting(t, func(s *attestation.Settings) {
		s.TEE, s.Service = attestation.TEESNP, "unix://"+filepath.Join(t.TempDir(), "none.sock")
	})
	a.attest(t.Context()) // the timeout is zero
	if found := a.outcomeOf(t, stageCPU); found.Status != statusFailed {
		t.Errorf("%+v", found)
	}
	failure := a.state.Boot.Failure
	if failure == nil || failure.Reason != reasonBoot || !strings.Contains(failure.Message, "the attestation service of the machine does not respond") {
		t.Errorf("%+v", failure)
	}
	if found := a.outcomeOf(t, stageGPU); found.Status != statusSkipped {
		t.Errorf("%+v", found)
	}
}

func TestAnotherMeasurementDocumentFailsTheBoot(t *testing.T) {
	a := attesting(t, nil)
	if err := os.WriteFile(a.spec.Attestation.Measurement.Path, []byte("{ }"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.attest(t.Context())
	if found := a.outcomeOf(t, stageCPU); found.Status != statusFailed || !strings.Contains(found.Detail, "not the file that was measured") {
		t.Errorf("%+v", found)
	}
}

func TestAStoppedAgentRequestsNoEvidence(t *testing.T) {
	a := attesting(t, func(s *attestation.Settings) {
		s.TEE, s.Service = attestation.TEETDX, "unix://"+filepath.Join(t.TempDir(), "none.sock")
	})
	a.evidenceTimeout = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	cancel()
	go func() {
		defer close(done)
		a.awaitEvidence(ctx, stageCPU, func(context.Context) (attestation.CheckResult, error) {
			return attestation.CheckResult{}, context.Canceled
		})
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it continues")
	}
	if len(a.state.Boot.Outcomes) != 0 {
		t.Errorf("%+v", a.state.Boot.Outcomes)
	}
}
