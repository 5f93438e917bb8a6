// Package prestop is `guest stop`, the hook that the kubelet runs before it ends a
// container: it sends the stop signal of the file, waits, and kills what is left.
package prestop

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/containerspec"
	"cloister.dev/guest/internal/privileges"
)

const (
	waitFirst = 5 * time.Second
	everybody = -1
)

// Run asks process 1 to end, by the stop signal, and waits for the stop timeout.
// When process 1 ends, the kernel ends this process with it; when Run returns,
// everything else in the container was killed, and the kubelet goes on with TERM
// and, at the end of the Pod's grace period, KILL: a process cannot kill the
// first one of its own process namespace.
//
// It runs nothing of the tenant's, and takes the user of process 1 with no
// capability before it sends anything.
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
	// The program may have taken another user than it was started with. While the
	// launcher is still process 1, first is its zero value: root, as the launcher.
	runtime.LockOSThread()
	if err := privileges.Drop(privileges.Identity{UID: first.UID, GID: first.GID}); err != nil {
		return err
	}
	if err := signal(1, container.StopSignal()); err != nil {
		return fmt.Errorf("the stop signal could not be sent: %w", err)
	}
	time.Sleep(container.StopTimeout())
	if err := signal(everybody, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("what is left could not be killed: %w", err)
	}
	return nil
}

func signal(process int, number syscall.Signal) error { return unix.Kill(process, number) }
