package attestation

import (
	"crypto/sha256"
	"fmt"
	"os"

	"cloister.dev/guest/internal/attestdoc"
	"cloister.dev/guest/internal/measuredboot"
	"cloister.dev/guest/internal/measuredboot/commandline"
)

// commandLineFile is where the kernel shows its command line.
const commandLineFile = "/proc/cmdline"

// machine is a machine with a measured boot.
type machine struct {
	measuredboot.Machine
	commandLine string
	measurement [sha256.Size]byte
}

func newMachine(settings Settings) *machine {
	return &machine{
		Machine:     measuredboot.Machine{Address: settings.Service, EventLog: measuredboot.EventLogFile},
		commandLine: commandLineFile, measurement: sha256.Sum256(settings.Measurement),
	}
}

// document returns the attestation document of a claim.
func (m *machine) document(claim attestdoc.Claim) (attestdoc.Document, error) {
	evidence, err := m.quote(claim)
	if err != nil {
		return attestdoc.Document{}, err
	}
	return claim.Document(attestdoc.CPUMeasuredBoot, evidence.Bytes(), nil)
}

func (m *machine) quote(claim attestdoc.Claim) (measuredboot.Evidence, error) {
	reportData, err := claim.ReportData()
	if err != nil {
		return measuredboot.Evidence{}, err
	}
	return m.Evidence(reportData)
}

// check is the boot stage: the TPM quotes, and the kernel's command line names the measurement. That the
// TPM measured this line is for verifiers to see.
func (m *machine) check(claim attestdoc.Claim) (CheckResult, error) {
	if _, err := m.quote(claim); err != nil {
		return CheckResult{}, err
	}
	line, err := os.ReadFile(m.commandLine)
	if err != nil {
		return CheckResult{}, fmt.Errorf("the kernel's command line cannot be read: %w", err)
	}
	if named, wanted := commandline.Measurement(string(line)), fmt.Sprintf("sha256:%x", m.measurement); named != wanted {
		return CheckResult{}, fmt.Errorf("the kernel's command line names the measurement %q, the enclave's is %s", named, wanted)
	}
	return CheckResult{Detail: "A TPM quoted the boot of the machine, whose command line names the measurement. " +
		"Whoever runs the node owns that TPM: nothing is confidential."}, nil
}
