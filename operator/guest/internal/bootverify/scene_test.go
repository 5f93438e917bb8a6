package bootverify_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cloister.dev/guest/internal/attestdoc"
	"cloister.dev/guest/internal/bootverify"
	"cloister.dev/guest/internal/measuredboot"
	"cloister.dev/guest/internal/measuredboot/testtpm"
)

// scene is a TPM whose registers are those of a real boot, and a verifier that expects it.
type scene struct {
	tpm     testtpm.TPM
	machine *measuredboot.Machine
	want    bootverify.Expectation
}

var reportData = append(make([]byte, 32), []byte("report data of a test, 32 bytes.")...)

// newScene replays a recorded event log into a TPM.
func newScene(t *testing.T) *scene {
	t.Helper()
	made := &scene{tpm: testtpm.Start(t)}
	made.tpm.Extend(t, recordedLog(t))
	made.machine = &measuredboot.Machine{Address: made.tpm.Address, EventLog: logFile(t)}
	made.want = expectation(t, made.tpm.Authorities)
	made.want.ReportData, made.want.Now = reportData, time.Now()
	return made
}

// expectation is that of the recorded boot.
func expectation(t *testing.T, authorities []byte) bootverify.Expectation {
	t.Helper()
	platform, err := bootverify.ReadPlatform(recorded(t, "platform.json"))
	must(t, err)
	trusted, err := bootverify.ReadAuthorities(authorities)
	must(t, err)
	return bootverify.Expectation{Measurement: sha256.Sum256(recordedParts(t).Measurement), Platform: platform, Authorities: trusted}
}

func (s *scene) evidence(t *testing.T) measuredboot.Evidence {
	t.Helper()
	made, err := s.machine.Evidence(reportData)
	must(t, err)
	return made
}

// refused fails the test unless evidence is refused at a step.
func refused(t *testing.T, evidence []byte, want bootverify.Expectation, step measuredboot.Step) {
	t.Helper()
	_, err := bootverify.Verify(evidence, want)
	var refusal *measuredboot.Refusal
	if !errors.As(err, &refusal) || refusal.Step != step {
		t.Errorf("%v instead of a refusal at the step %q", err, step)
	}
}

// recordedParts is the document that the machine of `make test-boot` gave.
func recordedParts(t *testing.T) attestdoc.Parts {
	t.Helper()
	parts, err := attestdoc.Parse(recorded(t, "document.json"))
	must(t, err)
	return parts
}

func recordedLog(t *testing.T) []byte {
	t.Helper()
	evidence, err := measuredboot.Parse(recordedParts(t).Report)
	must(t, err)
	return evidence.EventLog
}

func logFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "events")
	must(t, os.WriteFile(path, recordedLog(t), 0o600))
	return path
}

func recorded(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "measuredboot", "testdata", name))
	must(t, err)
	return content
}

// platformOf is a platform as its file says, with one field changed.
func platformOf(t *testing.T, change func(fields map[string]any)) bootverify.Platform {
	t.Helper()
	platform, err := bootverify.ReadPlatform(changed(t, change))
	must(t, err)
	return platform
}

func changed(t *testing.T, change func(fields map[string]any)) []byte {
	t.Helper()
	var fields map[string]any
	must(t, json.Unmarshal(recorded(t, "platform.json"), &fields))
	change(fields)
	text, err := json.Marshal(fields)
	must(t, err)
	return text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
