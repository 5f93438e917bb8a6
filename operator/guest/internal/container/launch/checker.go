package launch

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/containerspec"
	"cloister.dev/guest/internal/foundation/report"
)

// CheckerCommand is the guest's command that runs a container's health check.
const CheckerCommand = "checker"

const (
	// checkerReady is how long the checker may take to start.
	checkerReady = 10 * time.Second
	// checkerSocket is the descriptor of the checker's end of the socket to its launcher.
	checkerSocket = 3
	tokenBytes    = 32
)

// checker is what is left in a container with a health check when its program runs. Its token
// proves to the agent that a report is the checker's: only the launcher and the checker know it,
// both are undumpable, and it is in no argument and in no environment.
type checker struct{ guest, document, token string }

// newChecker returns the checker of a container; nil if it has no health check.
func newChecker(document string, container containerspec.Spec) (*checker, error) {
	if container.Health == nil {
		return nil, nil //nolint:nilnil // all methods work on nil
	}
	guest, err := os.Executable()
	if err != nil {
		return nil, err
	}
	random := make([]byte, tokenBytes)
	_, _ = rand.Read(random) // never fails, crypto/rand
	return &checker{guest, document, hex.EncodeToString(random)}, nil
}

// digest is what the agent gets to know of the token at the launch; empty without a checker.
func (c *checker) digest() string {
	if c == nil {
		return ""
	}
	return report.TokenDigest(c.token)
}

// start starts the checker as a child of the calling, locked thread, whose privileges are those
// of the program already, and returns once it is undumpable and waits: nothing of the tenant's
// runs before. The launcher's end of the socket between them is closed when it becomes the
// program.
func (c *checker) start(environment []string) error {
	if c == nil {
		return nil
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("the health check cannot be started: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "checker's end")
	defer theirs.Close()
	// Only to be read: it writes nothing, least of all to the container's log.
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("the health check cannot be started: %w", err)
	}
	defer null.Close()
	line := []string{c.guest, CheckerCommand, "-spec", c.document, "-socket", strconv.Itoa(checkerSocket)}
	process, err := os.StartProcess(c.guest, line, &os.ProcAttr{
		Env: environment, Files: []*os.File{null, null, null, theirs}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return fmt.Errorf("the health check cannot be started: %w", err)
	}
	theirs.Close()
	if err := errors.Join(greetChecker(pair[0], c.token), process.Release()); err != nil {
		return fmt.Errorf("the health check did not start: %w", err)
	}
	return nil
}

// greetChecker sends the token and waits until the checker has it.
func greetChecker(ours int, token string) error {
	if _, err := unix.Write(ours, []byte(token)); err != nil {
		return err
	}
	poll := []unix.PollFd{{Fd: int32(ours), Events: unix.POLLIN}}
	for end := time.Now().Add(checkerReady); ; {
		count, err := unix.Poll(poll, int(max(0, time.Until(end).Milliseconds())))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if count == 0 {
			return fmt.Errorf("no response within %s", checkerReady)
		}
		break
	}
	if count, err := unix.Read(ours, make([]byte, 1)); err != nil || count != 1 {
		return errors.Join(errors.New("it exited"), err)
	}
	return nil
}

// AwaitProgram is the checker's side: it receives the token, confirms it, and returns it when the
// launcher has become the container's program.
func AwaitProgram(socket int) (string, error) {
	unix.CloseOnExec(socket)
	file := os.NewFile(uintptr(socket), "launcher")
	if file == nil {
		return "", fmt.Errorf("%d is not an open descriptor", socket)
	}
	defer file.Close()
	token := make([]byte, 2*tokenBytes)
	count, err := file.Read(token)
	if err != nil || count != len(token) {
		return "", errors.Join(errors.New("it sent no token"), err)
	}
	if _, err := file.Write([]byte{1}); err != nil {
		return "", err
	}
	// The end of the socket: the launcher has been replaced by the program, or the container ends.
	_, _ = file.Read(make([]byte, 1))
	return string(token), nil
}
