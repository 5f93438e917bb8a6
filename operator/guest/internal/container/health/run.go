package health

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/containerspec"
	"cloister.dev/guest/internal/container/launch"
)

// CheckCommand is the guest's command that becomes the test itself, in a separate process.
const CheckCommand = "check"

const (
	waitOutput = time.Second
	waitKilled = 3 * time.Second
)

// errNotReaped is returned for a check that was killed but not reaped.
var errNotReaped = errors.New("the check is traced by another process")

// BecomeTest executes the test in this process, which has the privileges of the container's
// program already. It returns only on an error.
func BecomeTest(path string) error {
	container, err := containerspec.Read(path)
	if err != nil {
		return err
	}
	if container.Health == nil {
		return errors.New("the container has no health check")
	}
	arguments, err := container.Health.Arguments()
	if err != nil {
		return err
	}
	return launch.Become(container, arguments)
}

// runTest runs the test in a child and returns its result.
func runTest(line []string, timeout time.Duration) Result {
	output := &boundedBuffer{}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	command := exec.CommandContext(ctx, line[0], line[1:]...)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Processes that the test left behind may keep the output open.
	command.WaitDelay = waitOutput
	command.Cancel = func() error { return unix.Kill(-command.Process.Pid, unix.SIGKILL) }
	result := Result{Start: time.Now()}
	err := runWithTimeout(command, timeout+waitKilled)
	result.End = time.Now()
	result.Output = output.String()
	switch {
	case ctx.Err() != nil || errors.Is(err, errNotReaped):
		result.ExitCode = exitTimedOut
		result.Output = fmt.Sprintf("the check took longer than %s\n%s", timeout, result.Output)
	case command.ProcessState != nil && command.ProcessState.Exited():
		result.ExitCode = command.ProcessState.ExitCode()
	case command.ProcessState != nil:
		status, _ := command.ProcessState.Sys().(syscall.WaitStatus)
		result.ExitCode = 128 + int(status.Signal())
	default:
		result.ExitCode, result.Output = exitTimedOut, err.Error()
	}
	if len(result.Output) > maxOutput {
		result.Output = result.Output[:maxOutput]
	}
	result.Output = strings.ToValidUTF8(result.Output, "\uFFFD")
	return result
}

// runWithTimeout runs a command with a timeout. A tenant's program with the same user may
// trace the check and so keep it from being reaped: the checker then continues without it.
func runWithTimeout(command *exec.Cmd, limit time.Duration) error {
	if err := command.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- command.Wait() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return errNotReaped
	}
}

// boundedBuffer keeps the first bytes that are written to it.
type boundedBuffer struct {
	mutex sync.Mutex
	kept  []byte
}

func (b *boundedBuffer) Write(data []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.kept = append(b.kept, data[:min(len(data), maxOutput-len(b.kept))]...)
	return len(data), nil
}

func (b *boundedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return string(b.kept)
}
