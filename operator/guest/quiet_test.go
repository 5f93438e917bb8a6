package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloister.dev/guest/internal/foundation/measured"
)

// TestOnlyDebugEnclavesPrintInAMachine starts a program whose output is not read, as where the rules
// of a machine refuse logs, and one of a debug enclave.
func TestOnlyDebugEnclavesPrintInAMachine(t *testing.T) {
	t.Parallel()
	for _, debug := range []bool{false, true} {
		run := newPod(t, false, onePlan("app"))
		run.startNetwork()
		about := document("app", "print", "/tmp/printed")
		run.prepare(about)
		place := run.path("containers", "app", "guest")
		written, err := measured.Parse(readFile(t, filepath.Join(place, measured.FileName)))
		must(t, err)
		written.Host, written.Debug = measured.Host{TEE: "SNP", TEEUnit: "Pod"}, debug
		writeJSON(t, filepath.Join(place, measured.FileName), written)
		started := run.launch("app", []string{"/guest/guest", "exec", "-spec", "/guest/spec.json"})
		if code := started.wait(); code != 0 {
			t.Fatalf("exited with %d: %s", code, started.problem)
		}
		if _, err := os.Stat(filepath.Join(run.root("app"), "tmp/printed")); err != nil {
			t.Error(err)
		}
		for _, output := range []string{started.output.String(), started.problem.String()} {
			if strings.Contains(output, "secret") != debug {
				t.Errorf("debug %t: printed %d bytes", debug, len(output))
			}
		}
	}
}

func TestAPartOfTheGuestPrintsNothingInAMachine(t *testing.T) {
	t.Parallel()
	for _, debug := range []bool{false, true} {
		run := newPod(t, false, onePlan("app"))
		writeJSON(t, run.path("guest", measured.FileName), measured.Measurement{
			Version: measured.Version, Debug: debug, Host: measured.Host{TEE: "SNP", TEEUnit: "Pod"}})
		output, err := run.sidecar(filepath.Join(tools, "guest"), "net", "-plan", "/missing.json").CombinedOutput()
		if err == nil || strings.Contains(string(output), "missing.json") != debug {
			t.Errorf("debug %t: %v, printed %q", debug, err, output)
		}
	}
}
