// Package prestop is `guest stop`, the kubelet's preStop hook of a container: it sends the
// stop signal of the file, waits, and kills the remaining processes.
package prestop

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/containerspec"
	"cloister.dev/guest/internal/container/privileges"
)

const (
	waitFirst = 5 * time.Second
	everybody = -1
)

// Run sends process 1 the stop signal and waits for the stop timeout.
// When process 1 exits, the kernel kills this process with it. When Run returns, all other
// processes of the container have been killed, and the kubelet continues with TERM and, at
// the end of the Pod's grace period, KILL: a process cannot kill process 1 of its own PID
// namespace.
//
// It runs nothing of the tenant's, and takes the user of process 1, without any capability,
// before it sends a signal.
func Run(path string) error {
	container, err := containerspec.Read(path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitFirst)
	defer cancel()
	first, err := privileges.WaitDropped(ctx)
	if err != nil && !errors.Is(err, privileges.ErrNotDropped) {
		return err
	}
	// The program may have changed its user. While the launcher is still process 1, first
	// is its zero value: root, like the launcher.
	runtime.LockOSThread()
	if err := privileges.Drop(privileges.Identity{UID: first.UID, GID: first.GID}); err != nil {
		return err
	}
	if err := signal(1, container.StopSignal()); err != nil {
		return fmt.Errorf("the stop signal could not be sent: %w", err)
	}
	time.Sleep(container.StopTimeout())
	if err := signal(everybody, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("the remaining processes could not be killed: %w", err)
	}
	return nil
}

func signal(process int, number syscall.Signal) error { return unix.Kill(process, number) }
