package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/containerspec"
	"cloister.dev/guest/internal/container/tmpfs"
	"cloister.dev/guest/internal/foundation/paths"
	"cloister.dev/guest/internal/network/link"
	"cloister.dev/guest/internal/network/netattach"
	"cloister.dev/guest/internal/network/netns"
)

// deviceLists are directories that show the devices of the namespace in which /sys was mounted, the Pod's.
var deviceLists = []string{"/sys/class/net", "/sys/devices/virtual/net"}

// isolate creates the container's own namespaces and mounts for the calling thread.
func isolate(container containerspec.Spec) error {
	flags := 0
	if container.Hostname != "" {
		flags |= unix.CLONE_NEWUTS
	}
	if container.IPC == containerspec.IPCPrivate {
		flags |= unix.CLONE_NEWIPC
	}
	if container.Network != nil {
		flags |= unix.CLONE_NEWNET
	}
	if flags != 0 {
		if err := unix.Unshare(flags); err != nil {
			return fmt.Errorf("namespaces cannot be created (SYS_ADMIN is needed at launch): %w", err)
		}
	}
	if container.Hostname != "" {
		if err := unix.Sethostname([]byte(container.Hostname)); err != nil {
			return fmt.Errorf("the host name cannot be set: %w", err)
		}
	}
	if container.IPC == containerspec.IPCPrivate {
		if err := overExisting("/dev/mqueue", tmpfs.MountQueues); err != nil {
			return err
		}
	}
	if container.Network != nil {
		if err := attachNetwork(container); err != nil {
			return err
		}
	}
	// A file of the node: nothing limits its size, and it does not count as the Pod's storage.
	if err := overExisting(paths.TerminationLog, makeReadOnly); err != nil {
		return err
	}
	for _, target := range sortedKeys(container.Tmpfs) {
		options, err := tmpfs.ParseOptions(container.Tmpfs[target])
		if err != nil {
			return err
		}
		if err := tmpfs.Mount(target, options); err != nil {
			return err
		}
	}
	return nil
}

// attachNetwork sends the new network namespace to `guest net`, configures the devices
// that it gets, and returns when the network is ready.
func attachNetwork(container containerspec.Spec) error {
	deadline := deadlineOf(container.Network.DeadlineSeconds)
	fresh, err := netns.Own("net")
	if err != nil {
		return err
	}
	defer fresh.Close()
	response, join, confirm, err := netattach.Attach(container.Network.Socket, fresh, deadline)
	if err != nil {
		return err
	}
	if join != nil {
		defer join.Close()
		if err := unix.Setns(int(join.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("the shared network namespace cannot be entered: %w", err)
		}
	} else if err := link.ConfigureContainer(response.Interfaces, response.Nameserver); err != nil {
		return err
	}
	if err := openLowPorts(container); err != nil {
		return err
	}
	if err := confirm(); err != nil {
		return err
	}
	for _, list := range deviceLists {
		if err := overExisting(list, hideDirectory); err != nil {
			return err
		}
	}
	if err := mountFileOver("/etc/hosts", hosts(container, response)); err != nil {
		return err
	}
	return mountFileOver("/etc/resolv.conf", resolver(response.Nameserver))
}

// openLowPorts lets every user of the new namespace listen on ports below 1024, as
// container engines do.
func openLowPorts(container containerspec.Spec) error {
	if !container.LowPorts {
		return nil
	}
	err := tmpfs.WriteKernelSetting("net/ipv4/ip_unprivileged_port_start", "0")
	if err != nil && slices.Contains(container.Capabilities, "NET_BIND_SERVICE") {
		return nil // the capability has the same effect
	}
	if err != nil {
		return fmt.Errorf("lowPorts: %w; keep the capability NET_BIND_SERVICE instead", err)
	}
	return nil
}

func hideDirectory(target string) error {
	return tmpfs.Mount(target, tmpfs.Options{Mode: 0o555, Bytes: 4096,
		Attributes: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV})
}

// makeReadOnly makes a mount read-only.
func makeReadOnly(target string) error {
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, target, 0, &attributes); err != nil {
		return fmt.Errorf("%s cannot be made read-only: %w", target, err)
	}
	return nil
}

func overExisting(target string, mount func(string) error) error {
	if _, err := os.Lstat(target); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return mount(target)
}

// mountFileOver mounts one of the guest's files over that of the Pod. If the path is
// missing in the image or a symbolic link, the Pod's mount stays.
func mountFileOver(target, content string) error {
	if about, err := os.Lstat(target); err != nil || !about.Mode().IsRegular() {
		return nil //nolint:nilerr // the Pod has no mount to replace
	}
	return tmpfs.MountFile(target, []byte(content))
}

func hosts(container containerspec.Spec, response netattach.Response) string {
	var text strings.Builder
	text.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	names := container.Hostname
	if container.Name != container.Hostname {
		names += " " + container.Name
	}
	for _, one := range response.Interfaces {
		fmt.Fprintf(&text, "%s\t%s\n", one.Address.Addr(), names)
	}
	if len(response.Interfaces) == 0 {
		fmt.Fprintf(&text, "127.0.0.1\t%s\n", names)
	}
	return text.String()
}

func resolver(nameserver netip.Addr) string {
	if !nameserver.IsValid() {
		return "# This container has no network.\n"
	}
	return fmt.Sprintf("nameserver %s\noptions timeout:2 attempts:3\n", nameserver)
}

func sortedKeys(values map[string]string) []string {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
