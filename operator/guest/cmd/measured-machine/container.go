package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// containerRoot is the root file system of the only container, and containerName its name in the file.
const (
	containerRoot = "/container"
	containerName = "web"
)

// container returns the command that starts the container in namespaces of its own.
func container() *exec.Cmd {
	command := exec.Command("/proc/self/exe", containerCommand)
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	return command
}

// enterContainer mounts what the operator's Pod mounts there, and becomes `guest exec`.
func enterContainer() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, each := range []struct{ source, target string }{
		{"/dev", "dev"},
		{guestDirectory, ".cloister"},
		{"/etc/cloister-container", ".cloister/spec"},
		{runDirectory + "/report/" + containerName, ".cloister/report"},
		{runDirectory + "/service", "cloister"},
	} {
		target := filepath.Join(containerRoot, each.target)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(each.source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	proc := filepath.Join(containerRoot, "proc")
	if err := os.MkdirAll(proc, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("proc", proc, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	// A mount of its own, as the kubelet makes it; the guest makes that read-only.
	if err := unix.Mount(terminationLog, containerRoot+terminationLog, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", terminationLog, err)
	}
	// The initial file system cannot be pivoted away from; nothing here depends on it.
	if err := unix.Chroot(containerRoot); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	return unix.Exec(guestDirectory+"/bin/guest", []string{"guest", "exec", "-spec", guestDirectory + "/spec/container-0.json"}, []string{"PATH=/bin"})
}
