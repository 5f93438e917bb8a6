// Package install fills our one directory in every container of the Pod. `guest install`, the hook of
// `guest keep`, puts the guest there, since tenants' images do not contain it, and empty directories
// as mount points of other volumes; `guest keep` itself puts the measurement there.
//
// The whole directory is one mount in the containers. A mount cannot be moved away, so
// nothing can replace the guest, even where root may write to the container's file system.
package install

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Binary is the path of the guest below the directory.
const Binary = "bin/guest"

// mounts are the mount points of volumes; each container mounts those that it needs.
var mounts = []string{"spec", "wiring", "report", "debug", "ssh"}

const (
	// executable lets all users execute and none write; readable lets them read.
	executable = 0o555
	readable   = 0o444
)

// Run fills a directory with a copy of this program and the mount points, and waits until
// `guest keep` has put the measurement there: the next containers start when the hook ends.
func Run(directory string) error {
	if err := fill(directory); err != nil {
		return err
	}
	return awaitMeasurement(directory)
}

func fill(directory string) error {
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
	return place(source, filepath.Join(directory, Binary), executable)
}

// place writes a file atomically, and replaces one that an interrupted run left there.
func place(source io.Reader, target string, mode os.FileMode) (err error) {
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
