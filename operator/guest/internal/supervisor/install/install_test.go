package install

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

func TestTheGuestIsInstalledReadOnly(t *testing.T) {
	file := filepath.Join(t.TempDir(), Binary)
	for _, content := range []string{"old", "new"} {
		if err := place(strings.NewReader(content), file, executable); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(file)
	if err != nil || string(content) != "new" {
		t.Fatalf("%q %v", content, err)
	}
	about, err := os.Stat(file)
	if err != nil || about.Mode().Perm() != 0o555 {
		t.Fatalf("mode %v %v", about.Mode(), err)
	}
}

func TestAnInterruptedCopyLeavesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), Binary)
	cut := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("cut off")))
	if err := place(cut, file, executable); err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 0 {
		t.Fatalf("%v %v", left, err)
	}
}

func TestEveryMountHasItsDirectory(t *testing.T) {
	directory := t.TempDir()
	for range 2 {
		if err := fill(directory); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range mounts {
		if about, err := os.Stat(filepath.Join(directory, name)); err != nil || !about.IsDir() {
			t.Fatalf("%s: %v", name, err)
		}
	}
	ours, errOurs := os.ReadFile("/proc/self/exe")
	theirs, errTheirs := os.ReadFile(filepath.Join(directory, Binary))
	if err := errors.Join(errOurs, errTheirs); err != nil || string(ours) != string(theirs) {
		t.Fatalf("the copy is another program: %v", err)
	}
}
