// Package entrypoint determines what a container executes, as container engines do: from
// the image and the overrides of the configuration file.
package entrypoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultPath is searched if the container has no PATH.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Exit codes of a program that could not be started, as in shells and engines.
const (
	// exitGuest is a failure of the guest's own.
	exitGuest         = 125
	ExitNotExecutable = 126
	ExitNotFound      = 127
)

// ErrNotFound is returned if no file of that name exists; ErrNotExecutable if one exists that cannot be executed.
var (
	ErrNotFound      = errors.New("not found")
	ErrNotExecutable = errors.New("not executable")
)

// ExitCode returns the exit code of an error before the program runs.
func ExitCode(err error) int {
	switch {
	case errors.Is(err, ErrNotFound):
		return ExitNotFound
	case errors.Is(err, ErrNotExecutable):
		return ExitNotExecutable
	}
	return exitGuest
}

// Config is ENTRYPOINT and CMD of an image or of a configuration file; nil means not given.
type Config struct {
	Entrypoint []string `json:"entrypoint"`
	Command    []string `json:"command"`
}

// Arguments returns the arguments of an image with the overrides of the file.
//
// A given entrypoint replaces the image's and clears its command; a given
// command replaces the image's. Nothing left to run is an error.
func Arguments(image, file Config) ([]string, error) {
	entrypoint, command := image.Entrypoint, image.Command
	if file.Entrypoint != nil {
		entrypoint, command = file.Entrypoint, nil
	}
	if file.Command != nil {
		command = file.Command
	}
	arguments := make([]string, 0, len(entrypoint)+len(command))
	arguments = append(append(arguments, entrypoint...), command...)
	if len(arguments) == 0 || arguments[0] == "" {
		return nil, errors.New("neither the image nor the configuration file specifies what to run; set command or entrypoint")
	}
	for _, argument := range arguments {
		if strings.ContainsRune(argument, 0) {
			return nil, errors.New("an argument contains a zero byte")
		}
	}
	return arguments, nil
}

// Value returns a variable of an environment, the last one if it is listed more than once.
func Value(environment []string, name string) (string, bool) {
	for index := len(environment) - 1; index >= 0; index-- {
		if key, value, _ := strings.Cut(environment[index], "="); key == name {
			return value, true
		}
	}
	return "", false
}

// WithValue returns a copy of an environment in which a variable has one value.
func WithValue(environment []string, name, value string) []string {
	changed := make([]string, 0, len(environment)+1)
	for _, entry := range environment {
		if key, _, _ := strings.Cut(entry, "="); key != name {
			changed = append(changed, entry)
		}
	}
	return append(changed, name+"="+value)
}

// Find returns the file of a program name: the name itself if it contains a slash, else
// the first executable of that name in the directories of path.
//
// It is called with the tenant's privileges and in the container's working directory, so
// that it finds only what the tenant may execute.
func Find(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, checkFile(name)
	}
	result := fmt.Errorf("%q: %w in %s", name, ErrNotFound, path)
	for _, directory := range filepath.SplitList(path) {
		if directory == "" {
			directory = "."
		}
		candidate := directory + "/" + name
		err := checkFile(candidate)
		if err == nil {
			return candidate, nil
		}
		if errors.Is(err, ErrNotExecutable) {
			result = err
		}
	}
	return "", result
}

func checkFile(path string) error {
	about, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%q: %w: %w", path, ErrNotExecutable, err)
	case err != nil:
		return fmt.Errorf("%q: %w", path, ErrNotFound)
	case about.IsDir():
		return fmt.Errorf("%q: %w: a directory", path, ErrNotExecutable)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS); err != nil {
		return fmt.Errorf("%q: %w for this user: %w", path, ErrNotExecutable, err)
	}
	return nil
}
