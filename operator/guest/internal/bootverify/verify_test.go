package bootverify_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"cloister.dev/guest/internal/bootverify"
	"cloister.dev/guest/internal/measuredboot"
	"cloister.dev/guest/internal/measuredboot/testtpm"
)

func TestQuoteOfARealTPM(t *testing.T) {
	it := newScene(t)
	first, err := bootverify.Verify(it.evidence(t).Bytes(), it.want)
	must(t, err)
	it.want.Since = &first
	second, err := bootverify.Verify(it.evidence(t).Bytes(), it.want)
	must(t, err)
	if second.Resets != first.Resets || second.Clock < first.Clock {
		t.Errorf("%v after %v", second, first)
	}
}

func TestEvidenceOfARealMachine(t *testing.T) {
	want := expectation(t, recorded(t, "authorities.pem"))
	parts := recordedParts(t)
	at, err := time.Parse(time.RFC3339, string(recorded(t, "recorded-at")))
	must(t, err)
	want.ReportData, want.Now = parts.ReportData, at
	_, err = bootverify.Verify(parts.Report, want)
	must(t, err)
	want.Measurement[0]++
	refused(t, parts.Report, want, measuredboot.StepCommandLine)
}

func TestRefusesOtherExpectations(t *testing.T) {
	it := newScene(t)
	evidence := it.evidence(t).Bytes()
	other := testtpm.Start(t)
	unknown, err := bootverify.ReadAuthorities(other.Authorities)
	must(t, err)
	zeros := strings.Repeat("0", 64)
	for name, one := range map[string]struct {
		step   measuredboot.Step
		change func(want *bootverify.Expectation)
	}{
		"other nonce":       {measuredboot.StepReportData, func(want *bootverify.Expectation) { want.ReportData = make([]byte, 64) }},
		"other measurement": {measuredboot.StepCommandLine, func(want *bootverify.Expectation) { want.Measurement[0]++ }},
		"other authority":   {measuredboot.StepCertificate, func(want *bootverify.Expectation) { want.Authorities = unknown }},
		"no authority":      {measuredboot.StepCertificate, func(want *bootverify.Expectation) { want.Authorities = bootverify.Authorities{} }},
		"expired":           {measuredboot.StepCertificate, func(want *bootverify.Expectation) { want.Now = time.Now().AddDate(1, 0, 0) }},
		"other boot": {measuredboot.StepSameBoot, func(want *bootverify.Expectation) {
			want.Since = &bootverify.Counters{Resets: 99}
		}},
		"other kernel": {measuredboot.StepKernel, func(want *bootverify.Expectation) {
			want.Platform = platformOf(t, func(fields map[string]any) { fields["kernel"] = zeros })
		}},
		"other initial file system": {measuredboot.StepInitrd, func(want *bootverify.Expectation) {
			want.Platform = platformOf(t, func(fields map[string]any) { fields["initrd"] = zeros })
		}},
		"other command line": {measuredboot.StepCommandLine, func(want *bootverify.Expectation) {
			want.Platform = platformOf(t, func(fields map[string]any) { fields["command_line"] = "debug " + fields["command_line"].(string) })
		}},
		"other firmware": {measuredboot.StepFirmware, func(want *bootverify.Expectation) {
			want.Platform = platformOf(t, func(fields map[string]any) { fields["registers"].(map[string]any)["0"] = zeros })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			want := it.want
			one.change(&want)
			refused(t, evidence, want, one.step)
		})
	}
}

func TestRefusesChangedEvidence(t *testing.T) {
	it := newScene(t)
	good := it.evidence(t)
	other := testtpm.Start(t)
	other.Extend(t, recordedLog(t))
	foreign, err := (&measuredboot.Machine{Address: other.Address, EventLog: it.machine.EventLog}).Evidence(reportData)
	must(t, err)
	for name, one := range map[string]struct {
		step   measuredboot.Step
		change func(evidence *measuredboot.Evidence)
	}{
		"wrong register":        {measuredboot.StepRegisters, func(e *measuredboot.Evidence) { e.Registers[9] = strings.Repeat("0", 64) }},
		"a register is missing": {measuredboot.StepEvidence, func(e *measuredboot.Evidence) { e.Registers = e.Registers[1:] }},
		"signature changed":     {measuredboot.StepSignature, func(e *measuredboot.Evidence) { e.Signature = flipped(e.Signature) }},
		"quote changed":         {measuredboot.StepSignature, func(e *measuredboot.Evidence) { e.Quote = flipped(e.Quote) }},
		"quote of another key":  {measuredboot.StepSignature, func(e *measuredboot.Evidence) { e.Quote, e.Signature = foreign.Quote, foreign.Signature }},
		"other key certified":   {measuredboot.StepCertificate, func(e *measuredboot.Evidence) { *e = foreign }},
		"certificate changed":   {measuredboot.StepCertificate, func(e *measuredboot.Evidence) { e.Certificate = flipped(e.Certificate) }},
		"event log empty":       {measuredboot.StepEventLog, func(e *measuredboot.Evidence) { e.EventLog = []byte{} }},
		"event log cut":         {measuredboot.StepEventLog, func(e *measuredboot.Evidence) { e.EventLog = e.EventLog[:len(e.EventLog)-9] }},
		"event log edited": {measuredboot.StepEventLog, func(e *measuredboot.Evidence) {
			claimed := it.want
			claimed.Measurement[0]++
			e.EventLog = bytes.Replace(e.EventLog, bootverify.CommandDigest(it.want), bootverify.CommandDigest(claimed), 1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			evidence := good
			evidence.Registers = append([]string(nil), good.Registers...)
			one.change(&evidence)
			refused(t, evidence.Bytes(), it.want, one.step)
		})
	}
}

func TestRefusesAnotherMachine(t *testing.T) {
	for name, one := range map[string]struct {
		step     measuredboot.Step
		register uint32
	}{
		"something was measured later":      {measuredboot.StepEventLog, 9},
		"something was measured before":     {measuredboot.StepEventLog, 0},
		"a register that nothing should be": {measuredboot.StepEventLog, 8},
	} {
		t.Run(name, func(t *testing.T) {
			it := newScene(t)
			machine, err := measuredboot.Open(it.tpm.Address)
			must(t, err)
			_, err = tpm2.PCRExtend{
				PCRHandle: tpm2.AuthHandle{Handle: tpm2.TPMHandle(one.register), Auth: tpm2.PasswordAuth(nil)},
				Digests:   tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: make([]byte, 32)}}},
			}.Execute(machine)
			must(t, err)
			must(t, machine.Close())
			refused(t, it.evidence(t).Bytes(), it.want, one.step)
		})
	}
}

// TestNothingElseIsStartedUnderAnotherName has programs before and after the kernel. The firmware measures
// what it starts; the log, of which nothing but digests is measured, calls it something else, and has the
// bytes by which the digest is computed as its data.
func TestNothingElseIsStartedUnderAnotherName(t *testing.T) {
	for name, one := range map[string]struct {
		kind uint32
		data string
	}{
		"a word of the firmware":  {0x80000007, "the program"},
		"a word and more":         {0x80000007, "Calling EFI Application from Boot Option\x00"},
		"a separator":             {4, "the program"},
		"a separator of an error": {4, "\xff\xff\xff\xff"},
	} {
		t.Run(name, func(t *testing.T) {
			log := append(recordedLog(t), event(4, one.kind, one.data)...)
			made := &scene{tpm: testtpm.Start(t)}
			made.tpm.Extend(t, log)
			made.machine = &measuredboot.Machine{Address: made.tpm.Address, EventLog: filepath.Join(t.TempDir(), "log")}
			must(t, os.WriteFile(made.machine.EventLog, log, 0o600))
			made.want = expectation(t, made.tpm.Authorities)
			made.want.ReportData, made.want.Now = reportData, time.Now()
			refused(t, made.evidence(t).Bytes(), made.want, measuredboot.StepKernel)
		})
	}
}

// event is one event of a log, with a digest of its data by SHA-256 alone.
func event(register, kind uint32, data string) []byte {
	little, digest := binary.LittleEndian, sha256.Sum256([]byte(data))
	made := little.AppendUint32(little.AppendUint32(nil, register), kind)
	made = little.AppendUint16(little.AppendUint32(made, 1), 0x000B)
	made = little.AppendUint32(append(made, digest[:]...), uint32(len(data)))
	return append(made, data...)
}

func flipped(content []byte) []byte {
	made := bytes.Clone(content)
	made[len(made)-1] ^= 1
	return made
}
