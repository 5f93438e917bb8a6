// Package install is `guest install`, the init container that lays out the one
// directory of ours in every container of the Pod: the guest itself, since images
// of tenants hold none, and empty directories where other volumes are mounted.
//
// The whole directory is one mount in the containers. What is mounted somewhere
// cannot be moved away, so nothing else can take the place of the guest, not even
// where root may write to the container's file system.
package install

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Binary is where the guest lies below the directory.
const Binary = "bin/guest"

// mounts are the directories that volumes are mounted on; a container gets those that it needs.
var mounts = []string{"spec", "wiring", "report", "state", "debug", "ssh"}

// mode lets everybody execute and nobody write.
const mode = 0o555

// Run lays out a directory with a copy of this very program.
func Run(directory string) error {
	source, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("the guest cannot read itself: %w", err)
	}
	defer source.Close()
	for _, name := range mounts {
		if err := os.MkdirAll(filepath.Join(directory, name), 0o755); err != nil {
			return fmt.Errorf("the guest cannot be installed: %w", err)
		}
	}
	return place(source, filepath.Join(directory, Binary))
}

// place writes a file that appears whole or not at all, and replaces one that a
// cut-off run left there.
func place(source io.Reader, target string) (err error) {
	directory := filepath.Dir(target)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return fmt.Errorf("the guest cannot be installed: %w", err)
	}
	fresh, err := os.CreateTemp(directory, ".guest-")
	if err != nil {
		return fmt.Errorf("the guest cannot be installed: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("the guest cannot be installed in %s: %w", directory, err), os.Remove(fresh.Name()))
		}
	}()
	_, errCopy := io.Copy(fresh, source)
	if err := errors.Join(errCopy, fresh.Chmod(mode), fresh.Close()); err != nil {
		return err
	}
	return os.Rename(fresh.Name(), target)
}
