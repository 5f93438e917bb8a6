package measuredboot

import (
	"encoding/asn1"
	"fmt"
)

// Step is a step of the verification, in the order in which they are done.
type Step string

// Steps.
const (
	StepEvidence    Step = "evidence"
	StepCertificate Step = "certificate"
	StepSignature   Step = "quote signature"
	StepReportData  Step = "report data"
	StepRegisters   Step = "registers"
	StepEventLog    Step = "event log"
	StepFirmware    Step = "firmware"
	StepKernel      Step = "kernel"
	StepInitrd      Step = "initrd"
	StepCommandLine Step = "command line"
	StepSameBoot    Step = "same boot"
)

// Refusal is why evidence is refused.
type Refusal struct {
	// Step is the step that failed.
	Step Step
	// Problem is what was found.
	Problem string
}

// Error returns the step and the problem.
func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Step, r.Problem) }

// Refuse returns a *Refusal.
func Refuse(step Step, format string, values ...any) error {
	return &Refusal{step, fmt.Sprintf(format, values...)}
}

// AttestationKeyUsage is the extended key usage of certificates for attestation keys of TPMs
// (tcg-kp-AIKCertificate).
var AttestationKeyUsage = asn1.ObjectIdentifier{2, 23, 133, 8, 3}
