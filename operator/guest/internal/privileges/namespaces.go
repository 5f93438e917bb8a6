package privileges

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/netns"
)

const joinTimeout = 500 * time.Millisecond

// kinds are the namespaces that a launcher creates, with the flags of setns(2).
var kinds = []struct {
	name string
	flag int
}{{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"net", unix.CLONE_NEWNET}}

// JoinPID1 moves the calling, locked thread into the namespaces of process 1, if it was
// started in those that process 1 had before.
//
// The namespaces are opened with the user of process 1 as the file system user: the kernel
// permits that to a process with the same user and at least its capabilities. The function
// ask is the alternative for the network namespace of a program that is not readable; nil
// means that there is none.
func JoinPID1(ask func() (*os.File, error)) error {
	for _, kind := range kinds {
		theirs, err := openNamespaceRetrying(kind.name)
		if err != nil && kind.name == "net" && ask != nil {
			theirs, err = ask()
		} else if err != nil && kind.name != "net" {
			// A new namespace is not the container's, but not the Pod's either.
			if err := unix.Unshare(kind.flag); err != nil {
				return fmt.Errorf("a new %s namespace cannot be created: %w", kind.name, err)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("the container's %s namespace cannot be reached: %w", kind.name, err)
		}
		err = enter(theirs, kind.name, kind.flag)
		theirs.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func enter(theirs *os.File, name string, flag int) error {
	ours, err := netns.Own(name)
	if err != nil {
		return err
	}
	defer ours.Close()
	if same, err := netns.Same(ours, theirs); err != nil || same {
		return err
	}
	if err := unix.Setns(int(theirs.Fd()), flag); err != nil {
		return fmt.Errorf("the container's %s namespace cannot be entered: %w", name, err)
	}
	return nil
}

// openNamespaceRetrying opens a namespace of process 1. The process may be between its drop
// and its execve, still undumpable, for a moment; an unreadable program stays undumpable.
func openNamespaceRetrying(kind string) (*os.File, error) {
	for end := time.Now().Add(joinTimeout); ; time.Sleep(pollInterval) {
		text, err := os.ReadFile("/proc/1/status")
		if err != nil {
			return nil, err
		}
		first, err := ParseProcStatus(string(text))
		if err != nil {
			return nil, err
		}
		theirs, err := openNamespace(first, kind)
		if err == nil || time.Now().After(end) {
			return theirs, err
		}
	}
}

func openNamespace(first ProcStatus, kind string) (*os.File, error) {
	gid := setFileID(unix.SYS_SETFSGID, first.GID)
	uid := setFileID(unix.SYS_SETFSUID, first.UID)
	defer setFileID(unix.SYS_SETFSGID, gid)
	defer setFileID(unix.SYS_SETFSUID, uid)
	descriptor, err := unix.Open("/proc/1/ns/"+kind, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(descriptor), kind), nil
}

// setFileID sets the file system user or group of this thread and returns the previous one.
func setFileID(call uintptr, id int) int {
	previous, _, _ := syscall.RawSyscall(call, uintptr(id), 0, 0)
	return int(previous)
}
