// Package netns handles network namespaces by file descriptor.
//
// A descriptor is the only reference to a namespace that cannot be forged: inode numbers
// are reused immediately, and there is no shared process namespace.
package netns

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// nsfsMagic is the file system type of namespace descriptors, statfs(2).
const nsfsMagic = 0x6e736673

// attrTargetNamespace is IFLA_TARGET_NETNSID, rtnetlink(7): the namespace that a dump is about.
const attrTargetNamespace = 46

var (
	// ErrNotNetwork is returned for a descriptor that is not a network namespace.
	ErrNotNetwork = errors.New("the descriptor is not a network namespace")
	// ErrForeign is returned for a namespace of another user namespace.
	ErrForeign = errors.New("the network namespace belongs to another user namespace")
	// ErrOwn is returned for the Pod's own namespace.
	ErrOwn = errors.New("the network namespace is the Pod's own")
	// ErrAdopted is returned for a namespace that was sent before.
	ErrAdopted = errors.New("the network namespace is already adopted")
	// ErrUsed is returned for a namespace with more than a loopback device.
	ErrUsed = errors.New("the network namespace is not new: it contains devices")
)

// Own opens a namespace (net, uts, ipc, user) of the calling thread.
func Own(kind string) (*os.File, error) { return os.Open("/proc/thread-self/ns/" + kind) }

// Same reports whether two descriptors refer to the same namespace.
func Same(one, other *os.File) (bool, error) {
	var first, second unix.Stat_t
	if err := unix.Fstat(int(one.Fd()), &first); err != nil {
		return false, err
	}
	if err := unix.Fstat(int(other.Fd()), &second); err != nil {
		return false, err
	}
	return first.Dev == second.Dev && first.Ino == second.Ino, nil
}

// Adopt checks a descriptor from a container and marks its namespace permanently as
// adopted.
//
// It must be a network namespace, owned by this process's user namespace, not the Pod's
// own, contain nothing but a loopback device, and have no id in this namespace yet.
// Assigning the id is atomic in the kernel, so that of two processes that send the same
// namespace one is refused.
func Adopt(namespace *os.File) error {
	if err := checkKind(namespace); err != nil {
		return err
	}
	if id, err := netlink.GetNetNsIdByFd(int(namespace.Fd())); err != nil {
		return fmt.Errorf("the id of the network namespace cannot be read: %w", err)
	} else if id >= 0 {
		return ErrAdopted
	}
	if err := netlink.SetNetNsIdByFd(int(namespace.Fd()), -1); errors.Is(err, unix.EEXIST) {
		return ErrAdopted
	} else if err != nil {
		return fmt.Errorf("the id of the network namespace cannot be set: %w", err)
	}
	id, err := netlink.GetNetNsIdByFd(int(namespace.Fd()))
	if err != nil {
		return fmt.Errorf("the id of the network namespace cannot be read: %w", err)
	}
	count, err := countLinks(id)
	if err != nil {
		return err
	}
	if count != 1 {
		return ErrUsed
	}
	return nil
}

func checkKind(namespace *os.File) error {
	var system unix.Statfs_t
	if err := unix.Fstatfs(int(namespace.Fd()), &system); err != nil {
		return err
	}
	if system.Type != nsfsMagic {
		return ErrNotNetwork
	}
	kind, err := unix.IoctlRetInt(int(namespace.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		return ErrNotNetwork
	}
	owner, err := unix.IoctlRetInt(int(namespace.Fd()), unix.NS_GET_USERNS)
	if errors.Is(err, unix.EPERM) {
		return ErrForeign
	} else if err != nil {
		return fmt.Errorf("the owner of the network namespace cannot be read: %w", err)
	}
	owning := os.NewFile(uintptr(owner), "owner")
	defer owning.Close()
	if same, err := sameAsOwn(owning, "user"); err != nil {
		return err
	} else if !same {
		return ErrForeign
	}
	if same, err := sameAsOwn(namespace, "net"); err != nil {
		return err
	} else if same {
		return ErrOwn
	}
	return nil
}

func sameAsOwn(namespace *os.File, kind string) (bool, error) {
	own, err := Own(kind)
	if err != nil {
		return false, err
	}
	defer own.Close()
	return Same(namespace, own)
}

// countLinks returns the number of devices of another namespace, by its id.
func countLinks(id int) (int, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(attrTargetNamespace, nl.Uint32Attr(uint32(id))))
	answers, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil {
		return 0, fmt.Errorf("the devices of the network namespace cannot be listed: %w", err)
	}
	return len(answers), nil
}
