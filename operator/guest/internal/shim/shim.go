// Package shim is `guest shim`: it becomes Caddy, if that is of a version on whose behaviour
// the shim's rules stand.
//
// Before 2.11.2, Caddy expanded placeholders twice: a client's target such as
// ?{file./etc/passwd} was evaluated by the rules that compare it.
package shim

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	program = "caddy"
	module  = "github.com/caddyserver/caddy/v2"
	// certificateVariable names the file of the certificate, where `guest certificate` has one signed:
	// Caddy looks for it when it starts, and then only after a pause that grows.
	certificateVariable = "CERTIFICATE_FILE"
	awaitPause          = 20 * time.Millisecond
)

// oldest is the oldest version that is started: the one that the rules are tested with.
var oldest = []int{2, 11, 9}

// ErrTooOld is returned for a Caddy that is too old, or does not show its version.
var ErrTooOld = errors.New("the image of the shim needs Caddy 2.11.9 or newer; set shimImage of the operator")

// Run replaces this process with Caddy. It returns only on an error.
func Run(config string) error {
	file, err := exec.LookPath(program)
	if err != nil {
		return fmt.Errorf("the image of the shim has no program %s on its PATH: %w", program, err)
	}
	if err := check(file); err != nil {
		return err
	}
	awaitFile(os.Getenv(certificateVariable))
	err = syscall.Exec(file, []string{program, "run", "--config", config}, os.Environ())
	return fmt.Errorf("%s cannot be executed: %w", file, err)
}

// awaitFile waits until a file exists; empty means none. How long that may take is decided by
// whoever creates it, and reports why it is missing.
func awaitFile(path string) {
	for path != "" {
		if _, err := os.Stat(path); err == nil {
			return
		}
		time.Sleep(awaitPause)
	}
}

// check reads the version that the Go toolchain wrote into the program, which is quicker
// than running it.
func check(file string) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%w: %s does not show its version: %w", ErrTooOld, file, err)
	}
	version := ""
	if info.Main.Path == module {
		version = info.Main.Version
	}
	for _, one := range info.Deps {
		if one.Path == module {
			version = one.Version
		}
	}
	if !isRecent(version) {
		return fmt.Errorf("%w: %s is version %q", ErrTooOld, file, version)
	}
	return nil
}

// isRecent reports whether a version such as v2.11.9 is one that is started; a pre-release
// comes before its release.
func isRecent(version string) bool {
	text, isVersion := strings.CutPrefix(version, "v")
	text, _, _ = strings.Cut(text, "+")
	text, _, before := strings.Cut(text, "-")
	parts := strings.Split(text, ".")
	if !isVersion || len(parts) != len(oldest) {
		return false
	}
	numbers := make([]int, len(parts))
	for index, part := range parts {
		number, err := strconv.Atoi(part)
		if err != nil {
			return false
		}
		numbers[index] = number
	}
	order := slices.Compare(numbers, oldest)
	return order > 0 || order == 0 && !before
}
