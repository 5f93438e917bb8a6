package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAFileIsReplacedWithItsMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, content := range []string{"first", "second"} {
		if err := Write(path, []byte(content), 0o604); err != nil {
			t.Fatal(err)
		}
		found, err := os.ReadFile(path)
		if err != nil || string(found) != content {
			t.Fatalf("%q, %v", found, err)
		}
		if about, err := os.Stat(path); err != nil || about.Mode().Perm() != 0o604 {
			t.Fatalf("%v, %v", about.Mode(), err)
		}
	}
	onlyIn(t, filepath.Dir(path), "file")
}

func TestWhatCannotBeReplacedStays(t *testing.T) {
	directory := t.TempDir()
	path := filepath.Join(directory, "taken")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("content"), 0o600); err == nil {
		t.Fatal("a directory was replaced by a file")
	}
	onlyIn(t, directory, "taken")
	if err := Write(filepath.Join(directory, "none", "file"), nil, 0o600); err == nil {
		t.Fatal("a file was written into a directory that does not exist")
	}
}

// onlyIn fails the test if a directory has anything but one entry.
func onlyIn(t *testing.T, directory, name string) {
	t.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Fatalf("%v, %v", entries, err)
	}
}
