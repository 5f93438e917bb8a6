package attestation

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloister.dev/guest/internal/attestdoc"
	"cloister.dev/guest/internal/bootverify"
	"cloister.dev/guest/internal/measuredboot"
	"cloister.dev/guest/internal/measuredboot/testtpm"
)

// bootOf is the machine whose document is in the test data, with a TPM that has its registers, and the
// measurement that its command line names.
func bootOf(t *testing.T) (*Attester, bootverify.Expectation) {
	t.Helper()
	data := filepath.Join("..", "measuredboot", "testdata")
	text, err := os.ReadFile(filepath.Join(data, "document.json"))
	must(t, err)
	parts, err := attestdoc.Parse(text)
	must(t, err)
	evidence, err := measuredboot.Parse(parts.Report)
	must(t, err)
	tpm := testtpm.Start(t)
	tpm.Extend(t, evidence.EventLog)
	directory := t.TempDir()
	key := filepath.Join(directory, "key")
	must(t, os.WriteFile(key, []byte(strings.Repeat("ab", 32)), 0o600))
	attester, err := New(Settings{TEE: TEENone, MeasuredBoot: true, Service: tpm.Address, Measurement: parts.Measurement, Key: key})
	must(t, err)
	platformText, err := os.ReadFile(filepath.Join(data, "platform.json"))
	must(t, err)
	platform, err := bootverify.ReadPlatform(platformText)
	must(t, err)
	authorities, err := bootverify.ReadAuthorities(tpm.Authorities)
	must(t, err)
	attester.machine.EventLog, attester.machine.commandLine = filepath.Join(directory, "events"), filepath.Join(directory, "cmdline")
	must(t, os.WriteFile(attester.machine.EventLog, evidence.EventLog, 0o600))
	digest := sha256.Sum256(parts.Measurement)
	line := strings.Replace(platform.CommandLine, bootverify.Place, fmt.Sprintf("sha256:%x", digest), 1)
	must(t, os.WriteFile(attester.machine.commandLine, []byte(line+"\n"), 0o600))
	return attester, bootverify.Expectation{Measurement: digest, Platform: platform, Authorities: authorities, Now: time.Now()}
}

func TestMeasuredBoot(t *testing.T) {
	attester, want := bootOf(t)
	checked, err := attester.CheckCPU(t.Context())
	must(t, err)
	if checked.Skipped || !strings.Contains(checked.Detail, "nothing is confidential") {
		t.Errorf("%+v", checked)
	}
	nonce := []byte(strings.Repeat("n", attestdoc.NonceSize))
	document, err := attester.Document(t.Context(), nonce, "")
	must(t, err)
	if document.CPU.Format != attestdoc.CPUMeasuredBoot {
		t.Error(document.CPU.Format)
	}
	claim := attestdoc.Claim{Nonce: nonce, Keys: attestdoc.CryptoMaterial{TLSSPKI: strings.Repeat("ab", 32)}, Measurement: attester.settings.Measurement}
	want.ReportData, err = claim.ReportData()
	must(t, err)
	evidence, err := attester.machine.quote(claim)
	must(t, err)
	_, err = bootverify.Verify(evidence.Bytes(), want)
	must(t, err)
}

func TestMeasuredBootThatIsNotOfTheMeasurement(t *testing.T) {
	attester, _ := bootOf(t)
	line, err := os.ReadFile(attester.machine.commandLine)
	must(t, err)
	for name, each := range map[string]struct {
		reason string
		change func()
	}{
		"another measurement":  {"names the measurement", func() { attester.machine.measurement[0]++ }},
		"another command line": {"names the measurement \"\"", func() { must(t, os.WriteFile(attester.machine.commandLine, []byte("quiet\n"), 0o600)) }},
		"no command line":      {"cannot be read", func() { must(t, os.Remove(attester.machine.commandLine)) }},
		"an empty log":         {"0 bytes", func() { must(t, os.WriteFile(attester.machine.EventLog, nil, 0o600)) }},
		"no TPM":               {"cannot be opened", func() { attester.machine.Address = "tpm+unix:///nowhere" }},
	} {
		t.Run(name, func(t *testing.T) {
			before := attester.machine.Machine.Address
			measurement := attester.machine.measurement
			log, err := os.ReadFile(attester.machine.EventLog)
			must(t, err)
			each.change()
			if _, err := attester.CheckCPU(t.Context()); err == nil || !strings.Contains(err.Error(), each.reason) {
				t.Errorf("%v instead of %q", err, each.reason)
			}
			attester.machine.Address, attester.machine.measurement = before, measurement
			must(t, os.WriteFile(attester.machine.EventLog, log, 0o600))
			must(t, os.WriteFile(attester.machine.commandLine, line, 0o600))
		})
	}
}

func TestSettingsOfAMeasuredBoot(t *testing.T) {
	for name, each := range map[string]struct {
		settings Settings
		problem  string
	}{
		"of a TEE":   {Settings{TEE: TEESNP, MeasuredBoot: true, Service: "tpm:///dev/tpmrm0", Key: "/k"}, "attestation.measuredBoot"},
		"no TPM":     {Settings{TEE: TEENone, MeasuredBoot: true, Key: "/k"}, "attestation.service"},
		"a service":  {Settings{TEE: TEENone, MeasuredBoot: true, Service: "http://127.0.0.1:8006", Key: "/k"}, "attestation.service"},
		"a relative": {Settings{TEE: TEENone, MeasuredBoot: true, Service: "tpm://dev", Key: "/k"}, "attestation.service"},
	} {
		if err := each.settings.Validate(); err == nil || !strings.Contains(err.Error(), each.problem) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
