package agent

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloister.dev/guest/internal/evidence/attestation"
	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/foundation/measured"
	"cloister.dev/guest/internal/foundation/paths"
)

// attesting returns an agent of an enclave without a TEE.
func attesting(t *testing.T, change func(*Spec)) *agent {
	t.Helper()
	spec := valid()
	spec.ServiceDirectory, spec.Attestation = t.TempDir(), &Attestation{}
	if change != nil {
		change(&spec)
	}
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

// shimOfItsOwn listens with a key of its own, as a shim without signed certificates does.
func shimOfItsOwn(t *testing.T) func(*Spec) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	return func(s *Spec) {
		s.Shim, s.Unmeasured.Hostnames = netip.MustParseAddrPort(server.Listener.Addr().String()), []string{"web.example"}
	}
}

func TestWithoutATEEAttestationIsSkippedWithAReason(t *testing.T) {
	a := attesting(t, shimOfItsOwn(t))
	if code, body := a.asked(t, attestationPath); code != http.StatusServiceUnavailable || !strings.Contains(body, "boot stages") {
		t.Errorf("before the start: %d %s", code, body)
	}
	a.attest(t.Context())
	for _, stage := range []string{stageCPU, stageGPU} {
		if found := a.outcomeOf(t, stage); found.Status != statusSkipped || found.Detail == "" {
			t.Errorf("%s: %+v", stage, found)
		}
	}
	code, body := a.asked(t, attestationPath+"?nonce="+strings.Repeat("01", 32))
	if code != http.StatusOK || !strings.Contains(body, attestdoc.CPUNone) {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := a.asked(t, attestationPath+"?nonce=00"); code != http.StatusBadRequest {
		t.Errorf("a bad nonce: %d", code)
	}
	written := filepath.Join(a.spec.ServiceDirectory, attestation.FileName)
	for deadline := time.Now().Add(time.Minute); ; {
		if content, err := os.ReadFile(written); err == nil {
			if !strings.Contains(string(content), attestdoc.CPUNone) {
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
	a := attesting(t, func(s *Spec) {
		s.Measurement.Host.TEE, s.Attestation.Service = attestation.TEESNP, "unix://"+filepath.Join(t.TempDir(), "none.sock")
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

func TestAMachineWithoutItsInitdataFailsTheBoot(t *testing.T) {
	a := attesting(t, func(s *Spec) {
		s.Measurement.Host, s.Attestation.Service = measured.Host{TEE: attestation.TEESNP, TEEUnit: "Pod"}, "http://127.0.0.1:8006"
	})
	a.attest(t.Context())
	if found := a.outcomeOf(t, stageCPU); found.Status != statusFailed || !strings.Contains(found.Detail, "initdata.toml") {
		t.Errorf("%+v", found)
	}
}

// The path is a constant: no document can name another file for the processor to bind.
func TestEvidenceBindsTheKeyOfTheConstantPathAlone(t *testing.T) {
	if paths.FingerprintFile != "/run/cloister/certificate/tls.spki" {
		t.Errorf("the fingerprint is read from %s", paths.FingerprintFile)
	}
	fingerprint := filepath.Join(t.TempDir(), "tls.spki")
	if err := os.WriteFile(fingerprint, []byte(strings.Repeat("1", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	a := attesting(t, func(s *Spec) { s.Attestation.BindsKey = true })
	attester, err := a.attesterOf(t.TempDir(), fingerprint, filepath.Join(t.TempDir(), "hpke.pub"))
	if err != nil {
		t.Fatal(err)
	}
	document, err := attester.Document(t.Context(), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := base64.StdEncoding.DecodeString(document.CryptoMaterial)
	if err != nil || !strings.Contains(string(keys), `"tls_spki_sha256":"`+strings.Repeat("1", 64)) {
		t.Errorf("%s %v", keys, err)
	}
}

// Evidence of an enclave with encrypted bodies always names their key, and that of the constant path.
func TestEvidenceBindsTheKeyForEncryptedBodies(t *testing.T) {
	if paths.BodiesPublicKey != "/run/cloister/ehbp/hpke.pub" {
		t.Errorf("the key is read from %s", paths.BodiesPublicKey)
	}
	fingerprint, public := filepath.Join(t.TempDir(), "tls.spki"), filepath.Join(t.TempDir(), "hpke.pub")
	if err := os.WriteFile(fingerprint, []byte(strings.Repeat("1", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	a := attesting(t, func(s *Spec) { s.Attestation.BindsKey, s.BodiesSocket = true, "/run/cloister/ehbp/ehbp.sock" })
	attester, err := a.attesterOf(t.TempDir(), fingerprint, public)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := attester.Document(t.Context(), nil, ""); !errors.Is(err, attestation.ErrNoKey) {
		t.Errorf("without the key: %v", err)
	}
	if err := os.WriteFile(public, []byte(strings.Repeat("2", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	document, err := attester.Document(t.Context(), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := base64.StdEncoding.DecodeString(document.CryptoMaterial)
	if err != nil || !strings.Contains(string(keys), `"hpke_x25519":"`+strings.Repeat("2", 64)) {
		t.Errorf("%s %v", keys, err)
	}
}

// The shim serves only when what it asks is there.
func TestTheShimWaitsForThePartsThatItAsks(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	socket := filepath.Join(t.TempDir(), "x.sock")
	for _, name := range []func(s *Spec){func(s *Spec) { s.GateSocket = socket }, func(s *Spec) { s.BodiesSocket = socket }} {
		a := attesting(t, name)
		a.spec.Shim, a.spec.Unmeasured.Hostnames = netip.MustParseAddrPort(listener.Addr().String()), nil
		if a.shimServes() {
			t.Error("it does not wait")
		}
		if err := os.WriteFile(socket, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if !a.shimServes() {
			t.Error("it waits for more")
		}
		if err := os.Remove(socket); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheCertificateIsTheOneThatTheShimPresents has a verifier that cannot see the connection's.
// spec: 28.8
func TestTheCertificateIsTheOneThatTheShimPresents(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	a := attesting(t, func(s *Spec) {
		s.Shim, s.Unmeasured.Hostnames = netip.MustParseAddrPort(server.Listener.Addr().String()), []string{"web.example"}
	})
	code, body := a.asked(t, wellKnown+"cloister-certificate")
	var found map[string]string
	if err := json.Unmarshal([]byte(body), &found); err != nil || code != http.StatusOK || len(found) != 1 {
		t.Fatal(code, body, err)
	}
	block, rest := pem.Decode([]byte(found["certificate"]))
	if block == nil || len(rest) > 0 || !bytes.Equal(block.Bytes, server.Certificate().Raw) {
		t.Error(found["certificate"])
	}
	server.Close()
	if code, body := a.asked(t, wellKnown+"cloister-certificate"); code != http.StatusServiceUnavailable || !strings.Contains(body, "try again") {
		t.Error(code, body)
	}
}

func TestAStoppedAgentRequestsNoEvidence(t *testing.T) {
	a := attesting(t, func(s *Spec) {
		s.Measurement.Host.TEE, s.Attestation.Service = attestation.TEETDX, "unix://"+filepath.Join(t.TempDir(), "none.sock")
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
