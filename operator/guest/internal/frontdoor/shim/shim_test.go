package shim

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestVersionsThatAreStarted(t *testing.T) {
	for version, recent := range map[string]bool{
		"v2.11.9": true, "v2.11.10": true, "v2.12.0": true, "v3.0.0": true, "v2.12.0-beta.1": true, "v2.11.9+build": true,
		"v2.11.8": false, "v2.11.1": false, "v2.9.11": false, "v1.99.99": false, "v2.11.9-beta.1": false,
		"": false, "(devel)": false, "2.11.9": false, "v2.11": false, "v2.11.x": false,
	} {
		if isRecent(version) != recent {
			t.Errorf("%q: recent is %t", version, !recent)
		}
	}
}

// build writes a program whose dependency is a Caddy of a version, as published builds have it.
func build(t *testing.T, version string) string {
	t.Helper()
	directory := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module caddy\n\ngo 1.26.0\n\nrequire " + module + " " + version + "\n\nreplace " + module + " " + version + " => ./v2\n",
		"main.go":      "package main\n\nimport _ \"" + module + "\"\n\nfunc main() {}\n",
		"v2/go.mod":    "module " + module + "\n\ngo 1.26.0\n",
		"v2/module.go": "package caddy\n",
	} {
		path := filepath.Join(directory, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	made := exec.Command("go", "build", "-o", program, ".")
	made.Dir = directory
	if output, err := made.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return filepath.Join(directory, program)
}

func TestAnOldCaddyIsNotStarted(t *testing.T) {
	if err := check(build(t, "v2.11.9")); err != nil {
		t.Error(err)
	}
	old := build(t, "v2.11.1")
	if err := become(Config{}, filepath.Dir(old)); !errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(), `"v2.11.1"`) {
		t.Errorf("an old version: %v", err)
	}
	script := filepath.Join(t.TempDir(), program)
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := become(Config{}, filepath.Dir(script)); !errors.Is(err, ErrTooOld) {
		t.Errorf("a program that shows no version: %v", err)
	}
	if err := become(Config{}, t.TempDir()); err == nil || !strings.Contains(err.Error(), "no program caddy") {
		t.Errorf("no program: %v", err)
	}
}

func TestAwaitFileWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tls.crt")
	done := make(chan struct{})
	go func() {
		awaitFile(path)
		close(done)
	}()
	select {
	case <-done:
		t.Fatal("it did not wait")
	case <-time.After(3 * awaitPause):
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-done
}
