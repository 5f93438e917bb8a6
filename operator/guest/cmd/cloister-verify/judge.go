package main

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-sev-guest/verify/trust"

	"cloister.dev/guest/internal/client/bundle"
	"cloister.dev/guest/internal/client/recompute"
	"cloister.dev/guest/internal/client/source"
	"cloister.dev/guest/internal/client/verify"
	"cloister.dev/guest/internal/evidence/collateral"
)

// presented is what an enclave showed over one connection.
type presented struct {
	document []byte
	key      [sha256.Size]byte
	nonce    []byte
}

// judge compares what enclaves present with what the command line wants.
type judge struct {
	options  options
	inputs   recompute.Inputs
	release  *source.Release
	recorder *bundle.Recorder
	amd      map[string][]*trust.AMDRootCerts
	intel    *x509.CertPool
}

// newJudge reads everything that does not depend on a connection.
func newJudge(ctx context.Context, chosen options) (*judge, error) {
	made := &judge{options: chosen, recorder: &bundle.Recorder{Fetch: collateral.FromVendors}}
	var err error
	if chosen.developmentRoot != "" {
		if made.amd, made.intel, err = readRoots(chosen.developmentRoot); err != nil {
			return nil, err
		}
	}
	made.inputs, made.release, err = readInputs(ctx, chosen)
	return made, err
}

// start returns a verdict that has the steps before any connection.
func (j *judge) start(at time.Time) verdict {
	made := verdict{host: j.options.target.Host, at: at}
	if j.release != nil {
		made.release = fmt.Sprintf("%s %s (commit %s)", word(j.release.Repo), word(j.release.Tag), word(j.release.Commit))
		compared := fmt.Sprintf("%s of %s, sha256:%x", word(j.release.FileName), made.release, sha256.Sum256(j.release.File))
		if j.options.fromBundle != "" {
			compared += ", as the bundle claims"
		}
		made.passed("configuration file", compared)
	}
	if j.options.developmentRoot != "" {
		made.insecure = append(made.insecure, "the roots in "+j.options.developmentRoot+" are not those of a processor vendor")
	}
	if j.options.skipRevocation {
		made.insecure = append(made.insecure, "revocation was not checked")
	}
	return made
}

// judge returns the verdict about what was presented.
func (j *judge) judge(shown presented, at time.Time) verdict {
	made := j.start(at)
	made.measurement = j.options.digest
	read, err := verify.Read(shown.document)
	if err != nil {
		return refused(made, err)
	}
	want := verify.Expected{
		Key: shown.key, Nonce: shown.nonce, Measurement: j.options.digest, Launch: j.options.launch, MinimumTCB: j.options.leastTCB, Now: at,
		Fetch: j.recorder.Get, InsecureSkipRevocation: j.options.skipRevocation, InsecureRoots: j.amd, InsecureIntelRoots: j.intel,
		Passed: made.passed,
	}
	var different error
	if j.options.measurement == "" {
		want.Measurement, different = j.compute(read.Measurement, &made)
		var input *recompute.InputError
		if errors.As(different, &input) {
			return refused(made, &verify.Failure{Class: verify.ClassUsage, Step: input.Input, Problem: input.Problem, Remedy: "correct it, or name another one"})
		}
	}
	made.measurement = want.Measurement
	enclave, err := verify.Check(read, want)
	var failure *verify.Failure
	if different != nil && errors.As(err, &failure) && failure.Class == verify.ClassMeasurement {
		// The library knows only that the digest differs; this returns which part does.
		err = &verify.Failure{
			Class: verify.ClassMeasurement, Step: "measurement", Problem: different.Error(),
			Remedy: "compare it with what you expect to run: another release, host profile or platform runs, or an option is wrong",
		}
	}
	if err != nil {
		return refused(made, err)
	}
	made.notes = append(made.notes, gpuNotes(enclave.GPUs, read.DeviceEvidence)...)
	if j.options.strict && len(made.onWord) > 0 {
		return refused(made, &verify.Failure{
			Class: verify.ClassWord, Step: "operator's word", Problem: "taken from what the enclave's operator published: " + strings.Join(made.onWord, ", "),
			Remedy: "name what you have of --host-profile, --documents (or --settings), --guest-image and --shim-image (or --images-lock)",
		})
	}
	made.bodiesKey = hex.EncodeToString(read.HPKE)
	return made
}

// compute computes the measurement from the inputs and the published one.
func (j *judge) compute(published []byte, made *verdict) ([sha256.Size]byte, error) {
	result, err := recompute.Compute(string(published), j.inputs)
	if err != nil {
		return [sha256.Size]byte{}, err
	}
	made.onWord = result.OnWord
	for _, each := range result.Compared {
		made.passed("measurement: "+each.Part, fmt.Sprintf("%s, from %s", each.Value, each.From))
	}
	return result.Digest, nil
}

// gpuNotes returns what is not verified of a number of GPUs.
func gpuNotes(gpus int, evidence []byte) []string {
	switch {
	case gpus == 0:
		return nil
	case evidence == nil:
		return []string{fmt.Sprintf("the enclave has %d GPUs, and no evidence of them: they may be anything", gpus)}
	}
	return []string{fmt.Sprintf("the enclave has %d GPUs: their evidence is bound by the processor's, and this program does not verify it", gpus)}
}
