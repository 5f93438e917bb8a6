package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/privileges"
	"cloister.dev/guest/internal/network/netattach"
)

// escapes tries every known escape from a container and prints each result.
// Arguments: the wiring socket, the guest, its spec, the guest's mount.
func escapes(arguments []string) error {
	results := map[string]string{}
	for name, attempt := range kernelEscapes() {
		results[name] = outcomeOf(attempt())
	}
	for name, attempt := range fileEscapes(arguments[0], arguments[1], arguments[2], arguments[3]) {
		results[name] = outcomeOf(attempt())
	}
	return show(results)
}

func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "OPEN"
	case errors.Is(err, netattach.ErrRefused):
		return err.Error()
	}
	var number unix.Errno
	if errors.As(err, &number) {
		return unix.ErrnoName(number)
	}
	return err.Error()
}

// call returns an attempt of a system call that must not succeed in a container.
func call(number uintptr, arguments ...uintptr) func() error {
	return func() error {
		padded := [6]uintptr{}
		copy(padded[:], arguments)
		_, _, errno := unix.RawSyscall6(number, padded[0], padded[1], padded[2], padded[3], padded[4], padded[5])
		if errno != 0 {
			return errno
		}
		return nil
	}
}

func text(value string) uintptr {
	pointer, _ := unix.BytePtrFromString(value)
	return uintptr(unsafe.Pointer(pointer))
}

func kernelEscapes() map[string]func() error {
	null := uintptr(0)
	return map[string]func() error{
		"setns own net":         func() error { return enterOwn("net", unix.CLONE_NEWNET) },
		"setns own mnt":         func() error { return enterOwn("mnt", unix.CLONE_NEWNS) },
		"unshare net":           call(unix.SYS_UNSHARE, unix.CLONE_NEWNET),
		"unshare user":          call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
		"unshare user and net":  call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER|unix.CLONE_NEWNET),
		"unshare mount":         call(unix.SYS_UNSHARE, unix.CLONE_NEWNS),
		"clone user":            cloneUser,
		"clone3":                call(unix.SYS_CLONE3, null, 0),
		"mount":                 call(unix.SYS_MOUNT, text("none"), text("/tmp"), text("tmpfs"), 0, null),
		"fsopen":                call(unix.SYS_FSOPEN, text("tmpfs"), 0),
		"open_tree":             call(unix.SYS_OPEN_TREE, uintptr(0xffffff9c), text("/"), unix.OPEN_TREE_CLONE),
		"move_mount":            call(unix.SYS_MOVE_MOUNT, uintptr(0xffffff9c), text("/tmp"), uintptr(0xffffff9c), text("/tmp"), 0),
		"umount":                call(unix.SYS_UMOUNT2, text("/proc"), unix.MNT_DETACH),
		"pivot_root":            call(unix.SYS_PIVOT_ROOT, text("/"), text("/")),
		"chroot":                call(unix.SYS_CHROOT, text("/")),
		"bpf":                   call(unix.SYS_BPF, 0, null, 0),
		"keyctl":                call(unix.SYS_KEYCTL, 0, 0, 0),
		"add_key":               call(unix.SYS_ADD_KEY, text("user"), text("a"), text("b"), 1, 0),
		"request_key":           call(unix.SYS_REQUEST_KEY, text("user"), text("a"), null, 0),
		"perf_event_open":       call(unix.SYS_PERF_EVENT_OPEN, null, 0, 0, 0, 0),
		"userfaultfd":           call(unix.SYS_USERFAULTFD, 0),
		"io_uring_setup":        call(unix.SYS_IO_URING_SETUP, 1, null),
		"init_module":           call(unix.SYS_INIT_MODULE, null, 0, text("")),
		"kexec_load":            call(unix.SYS_KEXEC_LOAD, 0, 0, null, 0),
		"open_by_handle_at":     call(unix.SYS_OPEN_BY_HANDLE_AT, 0, null, 0),
		"reboot":                call(unix.SYS_REBOOT, unix.LINUX_REBOOT_MAGIC1, unix.LINUX_REBOOT_MAGIC2, unix.LINUX_REBOOT_CMD_CAD_OFF, null),
		"sethostname":           call(unix.SYS_SETHOSTNAME, text("x"), 1),
		"setdomainname":         call(unix.SYS_SETDOMAINNAME, text("x"), 1),
		"swapon":                call(unix.SYS_SWAPON, text("/x"), 0),
		"settimeofday":          call(unix.SYS_SETTIMEOFDAY, null, null),
		"syslog":                call(unix.SYS_SYSLOG, 3, null, 0),
		"acct":                  call(unix.SYS_ACCT, null),
		"quotactl":              call(unix.SYS_QUOTACTL, 0, null, 0, null),
		"fanotify_init":         call(unix.SYS_FANOTIFY_INIT, 0, 0),
		"vhangup":               call(unix.SYS_VHANGUP),
		"personality":           call(unix.SYS_PERSONALITY, 0x0040000),
		"capset all":            raise,
		"ambient":               call(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN),
		"bounding drop":         call(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, unix.CAP_CHOWN),
		"setgroups":             call(unix.SYS_SETGROUPS, 0, null),
		"mknod":                 call(unix.SYS_MKNODAT, uintptr(0xffffff9c), text("/tmp/device"), unix.S_IFBLK|0o600, 0x801),
		"raw socket":            func() error { return rawSocket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) },
		"raw ipv6 socket":       func() error { return rawSocket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6) },
		"packet socket":         func() error { return rawSocket(unix.AF_PACKET, unix.SOCK_RAW, 0) },
		"vsock socket":          func() error { return rawSocket(unix.AF_VSOCK, unix.SOCK_STREAM, 0) },
		"alg socket":            func() error { return rawSocket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0) },
		"vsock socket, widened": call(unix.SYS_SOCKET, 1<<32|unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		"packet filter":         packetFilter,
		"address":               addAddress,
		"socket mark":           func() error { return option(unix.SOL_SOCKET, unix.SO_MARK) },
		"transparent socket":    func() error { return option(unix.SOL_IP, unix.IP_TRANSPARENT) },
	}
}

func enterOwn(kind string, flag int) error {
	descriptor, err := unix.Open("/proc/self/ns/"+kind, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(descriptor)
	return call(unix.SYS_SETNS, uintptr(descriptor), uintptr(flag))()
}

func cloneUser() error {
	process, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.CLONE_NEWUSER|unix.CLONE_NEWNET)|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	if process == 0 {
		unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	}
	return nil
}

func raise() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: ^uint32(0), Permitted: ^uint32(0)}}
	return unix.Capset(&header, &data[0])
}

func option(level, name int) error {
	descriptor, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(descriptor)
	return unix.SetsockoptInt(descriptor, level, name, 1)
}

// message sends one netlink request and returns the kernel's error.
func message(protocol int, kind uint16, body []byte) error {
	descriptor, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(descriptor)
	request := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+len(body))
	header := (*unix.NlMsghdr)(unsafe.Pointer(&request[0]))
	header.Len, header.Type, header.Flags, header.Seq = uint32(unix.NLMSG_HDRLEN+len(body)), kind, unix.NLM_F_REQUEST|unix.NLM_F_ACK, 1
	request = append(request, body...)
	if err := unix.Sendto(descriptor, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	response := make([]byte, 4096)
	count, _, err := unix.Recvfrom(descriptor, response, 0)
	if err != nil || count < unix.NLMSG_HDRLEN+4 {
		return errors.Join(err, errors.New("no response"))
	}
	if verdict := *(*int32)(unsafe.Pointer(&response[unix.NLMSG_HDRLEN])); verdict != 0 {
		return unix.Errno(-verdict)
	}
	return nil
}

// addAddress adds 10.9.9.9/32 to the loopback device.
func addAddress() error {
	return message(unix.NETLINK_ROUTE, unix.RTM_NEWADDR, []byte{unix.AF_INET, 32, 0, 0, 1, 0, 0, 0, 8, 0, unix.IFA_LOCAL, 0, 10, 9, 9, 9})
}

// packetFilter adds a table "x" to nftables.
func packetFilter() error {
	return message(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, []byte{unix.NFPROTO_INET, 0, 0, 0, 6, 0, 1, 0, 'x', 0, 0, 0})
}

// fileEscapes returns the escapes through the guest's own files and sockets.
func fileEscapes(socket, guest, document, mount string) map[string]func() error {
	writing := func(path string) func() error {
		return func() error {
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err == nil {
				file.Close()
			}
			return err
		}
	}
	return map[string]func() error{
		"wire again":      func() error { return attachAgain(socket) },
		"write guest":     writing(guest),
		"write spec":      writing(document),
		"remove guest":    func() error { return os.Remove(guest) },
		"replace guest":   func() error { return os.Rename("/bin/testprogram", guest) },
		"move the mount":  func() error { return os.Rename(mount, "/moved") },
		"remove mount":    func() error { return os.Remove(mount) },
		"remove wiring":   func() error { return os.Remove(socket) },
		"core_pattern":    writing("/proc/sys/kernel/core_pattern"),
		"ip_forward":      writing("/proc/sys/net/ipv4/ip_forward"),
		"hosts":           writing("/etc/hosts"),
		"devices of Pod":  func() error { return isEmpty("/sys/class/net") },
		"virtual devices": func() error { return isEmpty("/sys/devices/virtual/net") },
	}
}

// attachAgain sends the container's own namespace once more.
func attachAgain(socket string) error {
	own, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close()
	_, _, _, err = netattach.Attach(socket, own, time.Now().Add(5*time.Second))
	return err
}

func isEmpty(directory string) error {
	entries, err := os.ReadDir(directory)
	if err == nil && len(entries) == 0 {
		return errors.New("empty")
	}
	return err
}

// hostile looks for processes with launch capabilities and tries to seize each of their
// threads, until the given file exists; then it writes how often it saw one and how often
// it seized one. With a third argument it prints the result and stays.
func hostile(arguments []string) error {
	runtime.LockOSThread() // ptrace is per thread
	seen, seized := 0, 0
	if err := write([]string{arguments[1], "ready"}); err != nil {
		return err
	}
	for {
		if _, err := os.Stat(arguments[0]); err == nil {
			break
		}
		threads, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
		for _, thread := range threads {
			if !isPrivileged(thread) {
				continue
			}
			seen++
			// A thread that has dropped its capabilities meanwhile is an ordinary process of the tenant.
			if seize(thread) {
				seized++
			}
		}
	}
	result := strconv.Itoa(seen) + " " + strconv.Itoa(seized)
	if err := write([]string{arguments[1], result}); err != nil || len(arguments) < 3 {
		return err
	}
	fmt.Println("result", result)
	return pause(nil)
}

func isPrivileged(thread string) bool {
	content, err := os.ReadFile(thread + "/status")
	if err != nil {
		return false
	}
	status, err := privileges.ParseProcStatus(string(content))
	return err == nil && status.Bounding.Has(unix.CAP_SYS_ADMIN)
}

// textAddress is the address of the code of a Go program without relocation.
const textAddress = 0x401000

// seize reports whether it seized a thread that still has its capabilities. The files of an
// exiting process can be opened but are empty, so a byte must be read.
func seize(thread string) bool {
	for _, name := range []string{"/mem", "/environ", "/maps"} {
		if file, err := os.OpenFile(thread+name, os.O_RDONLY, 0); err == nil {
			offset := int64(0)
			if name == "/mem" {
				offset = textAddress
			}
			count, _ := file.ReadAt(make([]byte, 1), offset)
			held := count > 0 && isPrivileged(thread)
			file.Close()
			if held {
				return true
			}
		}
	}
	for _, name := range []string{"/ns/net", "/root/guest"} {
		if file, err := os.OpenFile(thread+name, os.O_RDONLY, 0); err == nil {
			held := isPrivileged(thread)
			file.Close()
			if held {
				return true
			}
		}
	}
	number, _ := strconv.Atoi(filepath.Base(thread))
	if unix.PtraceSeize(number) == nil {
		held := isPrivileged(thread)
		// Only a stopped thread can be detached; an exited one is reaped here, or its parent never could.
		_ = unix.PtraceInterrupt(number)
		var status unix.WaitStatus
		_, _ = unix.Wait4(number, &status, unix.WALL, nil)
		_ = unix.PtraceDetach(number)
		return held
	}
	return false
}

// holder traces every process that it may and never detaches: a program that tries to keep
// its health check from being reaped.
func holder(arguments []string) error {
	runtime.LockOSThread()
	if err := write([]string{arguments[0], "ready"}); err != nil {
		return err
	}
	for {
		processes, _ := filepath.Glob("/proc/[0-9]*")
		for _, process := range processes {
			if number, err := strconv.Atoi(filepath.Base(process)); err == nil && number != 1 {
				_ = unix.PtraceSeize(number)
			}
		}
	}
}

// steal waits for a file and writes to another one how many other processes of the guest there are,
// and of how many it could read or trace anything that holds a secret. Then it kills every other
// process and stays.
func steal(arguments []string) error {
	runtime.LockOSThread() // ptrace is per thread
	for {
		if _, err := os.Stat(arguments[0]); err == nil {
			break
		}
	}
	found, stolen := 0, 0
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		if name, err := os.ReadFile(process + "/comm"); err != nil || strings.TrimSpace(string(name)) != "guest" {
			continue
		}
		found++
		number, err := strconv.Atoi(filepath.Base(process))
		if err != nil {
			return err
		}
		if isReadable(process+"/mem", textAddress) || isReadable(process+"/environ", 0) || isReadable(process+"/maps", 0) ||
			isFollowed(process+"/fd/0") || isFollowed(process+"/exe") || unix.PtraceSeize(number) == nil {
			stolen++
		}
	}
	if err := write([]string{arguments[1], strconv.Itoa(found) + " " + strconv.Itoa(stolen)}); err != nil {
		return err
	}
	if err := unix.Kill(-1, unix.SIGKILL); err != nil {
		return err
	}
	return pause(nil)
}

// isReadable reports whether a byte of a file can be read.
func isReadable(path string, offset int64) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	count, _ := file.ReadAt(make([]byte, 1), offset)
	return count > 0
}

// isFollowed reports whether a link of the kernel's can be followed.
func isFollowed(link string) bool {
	_, err := os.Readlink(link)
	return err == nil
}
