// Package pid1 is process 1 of a debug container: the guest, after it has given
// up everything that the tenant's program must not have.
//
// It has the user, groups, capabilities and filters of the image's program and
// nothing more; whatever it starts inherits them. It starts the image's program,
// passes signals on to it and ends as it ends, reaps what is left behind, and
// opens shells for `guest ssh`. No enclave but a debug one has it.
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

	"cloister.dev/guest/internal/containerspec"
	"cloister.dev/guest/internal/entrypoint"
)

// Run starts the program of the container that a document describes, serves
// shells at an inherited socket, and ends with the program's exit code. It
// returns only when the program could not be started.
func Run(path string, socket int) error {
	container, err := containerspec.Read(path)
	if err != nil {
		return err
	}
	if container.Shells == nil || socket < 3 {
		return errors.New("the document of this container lets nobody in")
	}
	unix.CloseOnExec(socket)
	// A probe of the kubelet has to find the way into this process's namespaces, as
	// into those of any program; there is nothing here that the tenant may not have.
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
		warn("nobody can get in", err)
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

// forwardedSignals are the signals for the program: all that can be caught but those that
// are the guest's own, and those that were ignored from the start.
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

// forwardSignal sends a signal to the program. One that has taken another user, which it
// can only do with a capability that the guest has as well, is sent it as that user.
func forwardSignal(process int, number syscall.Signal) {
	if err := unix.Kill(process, number); !errors.Is(err, unix.EPERM) {
		return // the program has ended, which the caller learns by itself
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
		runtime.LockOSThread() // never unlocked: the thread and its user end with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(owner.Uid), ^uintptr(0)); errno == 0 {
			_ = unix.Kill(process, number)
		}
	}()
	<-done
}

// exitCode is what a runtime tells of a process that ended so.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// serve accepts conversations at the inherited socket for as long as the process lives.
func serve(socket int, host *server) error {
	file := os.NewFile(uintptr(socket), "shell socket")
	defer file.Close()
	opened, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("the inherited shell socket: %w", err)
	}
	listener, isUnix := opened.(*net.UnixListener)
	if !isUnix {
		return errors.New("the inherited shell socket is not one")
	}
	go func() {
		for {
			accepted, err := listener.AcceptUnix()
			if err != nil {
				warn("nobody can get in any more", err)
				return
			}
			go host.handleConn(accepted)
		}
	}()
	return nil
}

// warn writes into the container's own log, where nothing else of the guest's stands.
func warn(what string, err error) { fmt.Fprintf(os.Stderr, "guest: %s: %v\n", what, err) }
