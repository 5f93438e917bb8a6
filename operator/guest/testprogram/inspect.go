package main

import (
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Inspection is what a program sees of itself.
type Inspection struct {
	Pid       int
	Arguments []string
	Directory string
	Status    map[string]string
	Variables map[string]string
	Hostname  string
	Files     []string
	Devices   []string
	Limit     uint64
	Hosts     string
	Resolver  string
	Mounts    string
	LowPort   bool
	Ignored   bool
	Queues    []string
}

// inspect prints what the program sees of itself, or writes it to a file if one is given.
func inspect(arguments []string) error {
	seen := Inspection{Pid: os.Getpid(), Arguments: os.Args, Status: map[string]string{}, Variables: map[string]string{}}
	seen.Directory, _ = os.Getwd()
	seen.Hostname, _ = os.Hostname()
	status, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(status), "\n") {
		key, value, _ := strings.Cut(line, ":")
		seen.Status[key] = strings.TrimSpace(value)
	}
	for _, entry := range os.Environ() {
		key, value, _ := strings.Cut(entry, "=")
		seen.Variables[key] = value
	}
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		for _, entry := range entries {
			if target, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && !strings.Contains(target, "anon_inode") && !strings.Contains(target, "/proc/") {
				seen.Files = append(seen.Files, entry.Name())
			}
		}
	}
	if devices, err := net.Interfaces(); err == nil {
		for _, device := range devices {
			seen.Devices = append(seen.Devices, device.Name)
		}
	}
	if queues, err := os.ReadDir("/dev/mqueue"); err == nil {
		for _, queue := range queues {
			seen.Queues = append(seen.Queues, queue.Name())
		}
	}
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	seen.Limit = limit.Max
	hosts, _ := os.ReadFile("/etc/hosts")
	resolver, _ := os.ReadFile("/etc/resolv.conf")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	seen.Hosts, seen.Resolver, seen.Mounts = string(hosts), string(resolver), string(mounts)
	if listener, err := net.Listen("tcp4", "127.0.0.1:80"); err == nil {
		seen.LowPort = true
		listener.Close()
	}
	seen.Ignored = signal.Ignored(syscall.SIGHUP)
	if len(arguments) > 0 {
		file, err := os.Create(arguments[0] + ".new")
		if err != nil {
			return err
		}
		os.Stdout = file
		if err := show(seen); err != nil {
			return err
		}
		return os.Rename(arguments[0]+".new", arguments[0])
	}
	return show(seen)
}
