// Package verify checks an enclave's attestation document as a client does.
//
// It is pure: the document, what the client knows and the time come in, a verdict goes out.
package verify

import "fmt"

// Class is a class of failure; its number is the exit code of cloister-verify.
type Class int

// Classes of failures.
const (
	ClassUsage           Class = 2
	ClassUnreachable     Class = 10
	ClassDocument        Class = 11
	ClassNotConfidential Class = 12
	ClassUnsupported     Class = 13
	ClassSource          Class = 14
	ClassSignature       Class = 20
	ClassFirmware        Class = 21
	ClassLaunch          Class = 22
	ClassKey             Class = 23
	ClassFreshness       Class = 24
	ClassInitdata        Class = 25
	ClassMeasurement     Class = 26
	ClassDebug           Class = 27
	ClassWord            Class = 28
)

// Failure is the reason why a document is refused.
type Failure struct {
	// Class is the class, and the exit code.
	Class Class `json:"code"`
	// Step is the step that failed.
	Step string `json:"step"`
	// Problem is what was found.
	Problem string `json:"problem"`
	// Remedy is what to do.
	Remedy string `json:"remedy"`
}

// Error returns the step, the problem and the remedy.
func (f *Failure) Error() string { return fmt.Sprintf("%s: %s; %s", f.Step, f.Problem, f.Remedy) }

func refuse(class Class, step, problem, remedy string) error {
	return &Failure{class, step, problem, remedy}
}
