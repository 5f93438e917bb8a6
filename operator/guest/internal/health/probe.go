package health

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/containerspec"
	"cloister.dev/guest/internal/launch"
	"cloister.dev/guest/internal/netattach"
	"cloister.dev/guest/internal/privileges"
	"cloister.dev/guest/internal/report"
)

// CheckCommand is the guest's command that runs the test itself, in a separate process.
const CheckCommand = "check"

const (
	waitFirst   = 30 * time.Second
	waitOutput  = time.Second
	waitKilled  = 3 * time.Second
	askDeadline = 5 * time.Second
	clockTicks  = 100 // USER_HZ, the same on all architectures of the guest
)

// ErrUnhealthy is returned if the container is not healthy.
var ErrUnhealthy = errors.New("not healthy")

// errNotReaped is returned for a check that was killed but not reaped.
var errNotReaped = errors.New("the check is traced by another process")

// Probe runs the health check if it is due, records the result and returns nil if the
// container is healthy. The process itself keeps its privileges and runs nothing of the
// tenant's; the test runs in a child that drops them first.
func Probe(path string) error {
	container, err := containerspec.Read(path)
	if err != nil {
		return err
	}
	if container.Health == nil {
		return errors.New("the container has no health check")
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitFirst)
	defer cancel()
	if _, err := privileges.WaitDropped(ctx); err != nil {
		return err
	}
	first, startedAt, err := pid1Start()
	if err != nil {
		return err
	}
	unlock, err := lock(container.Health.StateFile + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	state := ReadState(container.Health.StateFile, first, startedAt)
	if Due(state, *container.Health, time.Now()) {
		state = Next(state, *container.Health, run(path, container))
		if err := WriteState(container.Health.StateFile, state); err != nil {
			return fmt.Errorf("the health state cannot be written: %w", err)
		}
	}
	if container.Agent != nil {
		// A restart of the agent must not make a container unhealthy; the next probe reports again.
		_ = report.SendHealth(container.Agent.Socket, state.report())
	}
	if state.Status != Healthy {
		return fmt.Errorf("%w: %s, %d failures in a row: %s", ErrUnhealthy, state.Status, state.FailingStreak, state.Last.Output)
	}
	return nil
}

// RunCheck executes the test in this process, in the namespaces and with the privileges
// of the container. It returns only on an error.
func RunCheck(path string) error {
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
	runtime.LockOSThread()
	ctx, cancel := context.WithTimeout(context.Background(), waitFirst)
	defer cancel()
	if _, err := privileges.WaitDropped(ctx); err != nil {
		return err
	}
	if err := join(container); err != nil {
		return err
	}
	user, err := launch.ResolveUser(container)
	if err != nil {
		return err
	}
	return launch.ExecProgram(container, user, arguments)
}

// join enters the container's namespaces if it has its own.
func join(container containerspec.Spec) error {
	if container.Network == nil {
		if container.IPC != containerspec.IPCPrivate {
			return nil
		}
		return privileges.JoinPID1(nil)
	}
	return privileges.JoinPID1(func() (*os.File, error) {
		return netattach.Namespace(container.Network.Socket, time.Now().Add(askDeadline))
	})
}

// run runs the test in a child and returns its result.
func run(path string, container containerspec.Spec) Result {
	check := container.Health
	output := &boundedBuffer{}
	ctx, cancel := context.WithTimeout(context.Background(), check.Timeout())
	defer cancel()
	command := exec.CommandContext(ctx, "/proc/self/exe", CheckCommand, "-spec", path)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Processes that the test left behind may keep the output open.
	command.WaitDelay = waitOutput
	command.Cancel = func() error { return killGroup(command.Process.Pid, container) }
	result := Result{Start: time.Now()}
	err := runWithTimeout(command, check.Timeout()+waitKilled)
	result.End = time.Now()
	result.Output = output.String()
	switch {
	case ctx.Err() != nil || errors.Is(err, errNotReaped):
		result.ExitCode = exitTimedOut
		result.Output = fmt.Sprintf("the check took longer than %s\n%s", check.Timeout(), result.Output)
	case command.ProcessState != nil && command.ProcessState.Exited():
		result.ExitCode = command.ProcessState.ExitCode()
	case command.ProcessState != nil:
		status, _ := command.ProcessState.Sys().(syscall.WaitStatus)
		result.ExitCode = 128 + int(status.Signal())
	default:
		result.ExitCode, result.Output = exitTimedOut, err.Error()
	}
	if len(result.Output) > MaxOutput {
		result.Output = result.Output[:MaxOutput]
	}
	result.Output = strings.ToValidUTF8(result.Output, "\uFFFD")
	return result
}

// runWithTimeout runs a command with a timeout. A tenant's program with the same user may
// trace the check and so keep it from being reaped: the probe then continues without it.
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

// killGroup kills the child and its process group, as root and as the container's user:
// without the capability KILL, root may not kill another user's process.
func killGroup(group int, container containerspec.Spec) error {
	err := unix.Kill(-group, unix.SIGKILL)
	user, errUser := launch.ResolveUser(container)
	if errUser != nil {
		return errors.Join(err, errUser)
	}
	done := make(chan error)
	go func() {
		// The thread stays locked, so it exits with the goroutine, and its user with it.
		runtime.LockOSThread()
		uid := uintptr(user.UID)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
			done <- errno
			return
		}
		done <- unix.Kill(-group, unix.SIGKILL)
	}()
	if errTenant := <-done; errTenant != nil && err != nil {
		return errors.Join(err, errTenant)
	}
	return nil
}

// boundedBuffer keeps the first bytes that are written to it.
type boundedBuffer struct {
	mutex sync.Mutex
	kept  []byte
}

func (b *boundedBuffer) Write(data []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.kept = append(b.kept, data[:min(len(data), MaxOutput-len(b.kept))]...)
	return len(data), nil
}

func (b *boundedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return string(b.kept)
}

// lock locks a file: two probes of one container run one after the other.
func lock(path string) (func(), error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the health state cannot be locked: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("the health state cannot be locked: %w", err)
	}
	return func() { file.Close() }, nil
}

// pid1Start returns the start time of process 1, in clock ticks and as a time.
func pid1Start() (uint64, time.Time, error) {
	stat, err := os.ReadFile("/proc/1/stat")
	if err != nil {
		return 0, time.Time{}, err
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, time.Time{}, err
	}
	ticks, err := ParseStart(string(stat))
	if err != nil {
		return 0, time.Time{}, err
	}
	text, _, _ := strings.Cut(string(uptime), " ")
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("/proc/uptime: %w", err)
	}
	age := time.Duration(seconds*float64(time.Second)) - time.Duration(ticks)*time.Second/clockTicks
	return ticks, time.Now().Add(-age).UTC(), nil
}

// ParseStart parses the start time in clock ticks, field 22 of /proc/PID/stat, proc_pid_stat(5).
// The command, field 2, may contain anything, parentheses and spaces included.
func ParseStart(stat string) (uint64, error) {
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	const startField = 22 - 3
	if end < 0 || len(fields) <= startField {
		return 0, errors.New("/proc/1/stat cannot be read")
	}
	return strconv.ParseUint(fields[startField], 10, 64)
}
