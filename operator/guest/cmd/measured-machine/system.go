package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/measuredboot"
)

// modulesDirectory has the kernel's modules and the file order, which names them in the order in which
// they are loaded.
const modulesDirectory = "/modules"

// The address that QEMU's user network gives to its only guest, and the one of its gateway.
const (
	machineAddress = "10.0.2.15/24"
	gatewayAddress = "10.0.2.2"
)

// mounts are the file systems of the kernel that the parts of the guest need.
var mounts = []struct {
	kind, path string
	flags      uintptr
}{
	{"proc", "/proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{"sysfs", "/sys", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{"devtmpfs", "/dev", unix.MS_NOSUID},
	{"securityfs", "/sys/kernel/security", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{"cgroup2", "/sys/fs/cgroup", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{"tmpfs", "/run", unix.MS_NOSUID | unix.MS_NODEV},
	{"tmpfs", "/tmp", unix.MS_NOSUID | unix.MS_NODEV},
}

// prepare mounts file systems, loads modules and connects the network.
func prepare() error {
	for _, each := range mounts {
		if err := os.MkdirAll(each.path, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(each.kind, each.path, each.kind, each.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", each.path, err)
		}
	}
	if err := loadModules(); err != nil {
		return err
	}
	return connect()
}

func loadModules() error {
	list, err := os.Open(filepath.Join(modulesDirectory, "order"))
	if err != nil {
		return err
	}
	defer list.Close()
	for lines := bufio.NewScanner(list); lines.Scan(); {
		name := strings.TrimSpace(lines.Text())
		file, err := os.Open(filepath.Join(modulesDirectory, name))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(file.Fd()), "", 0)
		file.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("module %s: %w", name, err)
		}
	}
	return nil
}

// connect gives the only network card the address that QEMU expects.
func connect() error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return err
	}
	card, err := netlink.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("the machine has no network card: %w", err)
	}
	address, err := netlink.ParseAddr(machineAddress)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(card, address); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(card); err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: card.Attrs().Index, Gw: net.ParseIP(gatewayAddress)})
}

// makeDirectories makes those that are volumes of the Pod, which each of its users may write.
func makeDirectories() error {
	for _, name := range []string{"keep", "agent", "service", "report", "report/" + containerName, "certificate", "network"} {
		path := filepath.Join(runDirectory, name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(path, 0o777); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Chmod(guestDirectory, 0o777), os.WriteFile(terminationLog, nil, 0o600)); err != nil {
		return err
	}
	return os.Chmod(terminationLog, 0o666)
}

// showTPM gives a user the TPM and the firmware's log.
func showTPM(user int) error {
	for _, path := range []string{"/dev/tpmrm0", measuredboot.EventLogFile} {
		if err := os.Chown(path, user, user); err != nil {
			return fmt.Errorf("the machine has no TPM, or its firmware wrote no log: %w", err)
		}
	}
	return nil
}
