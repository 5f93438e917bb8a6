// Package pid1 is init (PID 1) of a debug container: the guest, after it has
// dropped all privileges that the tenant's program must not have.
//
// It has the user, groups, capabilities and filters of the image's program; its children
// inherit them. It starts the image's program, forwards signals to it and exits with its
// exit code, reaps orphans, and starts shells for `guest ssh`. Only debug enclaves have it.
package pid1

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/containerspec"
	"cloister.dev/guest/internal/foundation/entrypoint"
)

// Run starts the program of a container's spec, serves shells on an inherited socket, and
// exits with the program's exit code. It returns only if the program could not be started.
func Run(path string, socket int) error {
	container, err := containerspec.Read(path)
	if err != nil {
		return err
	}
	if container.Shells == nil || socket < 3 {
		return errors.New("the spec of this container has no shells")
	}
	unix.CloseOnExec(socket)
	// The kubelet's probes must be able to enter this process's namespaces, as those of
	// any program; the process has nothing that the tenant may not have.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return err
	}
	signals := forwardedSignals()
	tree := newChildren()
	arguments, err := container.Arguments()
	if err != nil {
		return err
	}
	search, _ := entrypoint.Value(os.Environ(), "PATH")
	file, err := entrypoint.Find(arguments[0], search)
	if err != nil {
		return err
	}
	process, ended, err := tree.start(file, arguments, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return fmt.Errorf("%q: %w: %w", file, entrypoint.ErrNotExecutable, err)
	}
	if err := serve(socket, &server{container: container, children: tree}); err != nil {
		warn("shells are not available", err)
	}
	for {
		select {
		case one := <-signals:
			if number, isNumber := one.(syscall.Signal); isNumber {
				forwardSignal(process, number)
			}
		case status := <-ended:
			os.Exit(exitCode(status))
		}
	}
}

// forwardedSignals returns the signals for the program: all that can be caught, except those
// that the guest uses itself and those that were ignored from the start.
func forwardedSignals() <-chan os.Signal {
	signals := make(chan os.Signal, 64)
	for number := syscall.Signal(1); number <= 64; number++ {
		switch number {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE, unix.SIGTTIN, unix.SIGTTOU:
		default:
			if !signal.Ignored(number) {
				signal.Notify(signals, number)
			}
		}
	}
	return signals
}

// forwardSignal sends a signal to the program. If the program has changed its user, which it
// can only do with a capability that the guest has as well, it is sent as that user.
func forwardSignal(process int, number syscall.Signal) {
	if err := unix.Kill(process, number); !errors.Is(err, unix.EPERM) {
		return // the program has exited, which the caller notices itself
	}
	about, err := os.Stat(fmt.Sprintf("/proc/%d", process))
	if err != nil {
		return
	}
	owner, known := about.Sys().(*syscall.Stat_t)
	if !known {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread exits with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(owner.Uid), ^uintptr(0)); errno == 0 {
			_ = unix.Kill(process, number)
		}
	}()
	<-done
}

// exitCode returns the exit code that a runtime reports for a wait status.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// serve accepts connections on the inherited socket as long as the process lives.
func serve(socket int, host *server) error {
	file := os.NewFile(uintptr(socket), "shell socket")
	defer file.Close()
	opened, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("the inherited shell socket: %w", err)
	}
	listener, isUnix := opened.(*net.UnixListener)
	if !isUnix {
		return errors.New("the inherited descriptor is not a socket")
	}
	go func() {
		for {
			accepted, err := listener.AcceptUnix()
			if err != nil {
				warn("shells are no longer available", err)
				return
			}
			go host.handleConn(accepted)
		}
	}()
	return nil
}

// warn writes to the container's own log, where the guest writes nothing else.
func warn(what string, err error) { fmt.Fprintf(os.Stderr, "guest: %s: %v\n", what, err) }
