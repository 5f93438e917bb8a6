// Package shim is `guest shim`: it becomes Caddy with a measured configuration, if that is of a version
// on whose behaviour the shim's rules stand.
//
// Before 2.11.2, Caddy expanded placeholders twice: a client's target such as
// ?{file./etc/passwd} was evaluated by the rules that compare it.
package shim

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/foundation/entrypoint"
	"cloister.dev/guest/internal/foundation/paths"
)

const (
	program    = "caddy"
	module     = "github.com/caddyserver/caddy/v2"
	awaitPause = 20 * time.Millisecond
)

// environment is all of Caddy's, which reads more of it than its configuration has.
var environment = []string{"PATH=" + entrypoint.DefaultPath, "HOME=" + paths.ShimData, "XDG_CONFIG_HOME=" + paths.ShimData, "XDG_DATA_HOME=" + paths.ShimData}

// oldest is the oldest version that is started: the one that the rules are tested with.
var oldest = []int{2, 11, 9}

// ErrTooOld is returned for a Caddy that is too old, or does not show its version.
var ErrTooOld = errors.New("the image of the shim needs Caddy 2.11.9 or newer; set shimImage of the operator")

// Run replaces this process with Caddy, with the configuration at a path. It returns only on an error.
func Run(path string) error {
	config, err := readConfig(path)
	if err != nil {
		return err
	}
	return become(config, entrypoint.DefaultPath)
}

func become(config Config, search string) error {
	file, err := entrypoint.Find(program, search)
	if err != nil {
		return fmt.Errorf("the image of the shim has no program %s in %s: %w", program, search, err)
	}
	if err := check(file); err != nil {
		return err
	}
	if config.Signed {
		// Caddy looks for it when it starts, and then only after a pause that grows.
		awaitFile(paths.ChainFile)
	}
	if err := giveAsInput(config.Caddy); err != nil {
		return fmt.Errorf("the configuration cannot be given to %s: %w", program, err)
	}
	err = syscall.Exec(file, []string{program, "run", "--config", "-"}, environment)
	return fmt.Errorf("%s cannot be executed: %w", file, err)
}

// giveAsInput makes content the standard input: no file that changes, and none that is left.
func giveAsInput(content []byte) error {
	descriptor, err := unix.MemfdCreate(program, unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(descriptor), program)
	defer file.Close()
	if _, err := file.Write(content); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return unix.Dup3(descriptor, unix.Stdin, 0)
}

// awaitFile waits until a file exists. How long that may take is decided by the part that creates it, and
// reports why it is missing.
func awaitFile(path string) {
	for {
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
