// Package atomicfile replaces files that other processes read.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Write replaces a file: a process that opens it reads the old content or the new one, whole. The mode is
// exact, whatever the umask is.
func Write(path string, content []byte, mode os.FileMode) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, err)
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Chmod(mode), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s cannot be written: %w", path, err), os.Remove(file.Name()))
	}
	return nil
}
