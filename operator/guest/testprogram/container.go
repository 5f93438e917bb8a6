package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/capability"
	"cloister.dev/guest/internal/container/seccomp"
)

// ContainerConfig is the configuration of a container of the fake runtime.
type ContainerConfig struct {
	// Root is the directory that becomes the root file system.
	Root string
	// Binds maps paths inside to directories outside; mounted read-only.
	Binds map[string]string
	// Writable maps paths inside to directories outside; mounted read-write.
	Writable map[string]string
	// Capabilities are the numbers of the launch capabilities.
	Capabilities []uint
	// Arguments are the command line.
	Arguments []string
	// Environment is the container's.
	Environment []string
	// PidFile is where the pid of the container's process 1, as seen from outside, is written.
	PidFile string
}

func readContainer(text string) (ContainerConfig, error) {
	var container ContainerConfig
	return container, json.Unmarshal([]byte(text), &container)
}

// runContainer starts a container and exits as its process 1 does.
func runContainer(arguments []string) error {
	container, err := readContainer(arguments[0])
	if err != nil {
		return err
	}
	command := exec.Command("/proc/self/exe", "init", arguments[0])
	command.Stdout, command.Stderr, command.Env = os.Stdout, os.Stderr, container.Environment
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread() // the parent-death signal is per thread
	if err := command.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(container.PidFile+".new", []byte(strconv.Itoa(command.Process.Pid)), 0o644); err != nil {
		return err
	}
	if err := os.Rename(container.PidFile+".new", container.PidFile); err != nil {
		return err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGUSR1, unix.SIGINT)
	go func() {
		for one := range signals {
			_ = command.Process.Signal(one)
		}
	}()
	err = command.Wait()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		if status, isStatus := ended.Sys().(syscall.WaitStatus); isStatus && status.Signaled() {
			os.Exit(128 + int(status.Signal()))
		}
		os.Exit(ended.ExitCode())
	}
	return err
}

// initContainer is process 1: it creates the root file system and executes the command.
func initContainer(arguments []string) error {
	container, err := readContainer(arguments[0])
	if err != nil {
		return err
	}
	if err := makeRoot(container); err != nil {
		return err
	}
	return become(container.Capabilities, container.Arguments)
}

func makeRoot(container ContainerConfig) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private: %w", err)
	}
	root := container.Root
	if err := unix.Mount(root, root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	for kind, place := range map[string]string{"proc": "proc", "sysfs": "sys", "mqueue": "dev/mqueue"} {
		if err := os.MkdirAll(filepath.Join(root, place), 0o755); err != nil {
			return err
		}
		if err := unix.Mount(kind, filepath.Join(root, place), kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	if err := bind("/dev/null", filepath.Join(root, "dev/null"), 0); err != nil {
		return err
	}
	terminals := filepath.Join(root, "dev/pts")
	if err := unix.Mount("devpts", terminals, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return fmt.Errorf("terminals: %w", err)
	}
	sysctl := filepath.Join(root, "proc/sys")
	if err := bind(sysctl, sysctl, unix.MS_RDONLY); err != nil {
		return err
	}
	for inside, outside := range container.Binds {
		if err := bind(outside, filepath.Join(root, inside), unix.MS_RDONLY); err != nil {
			return err
		}
	}
	for inside, outside := range container.Writable {
		if err := bind(outside, filepath.Join(root, inside), 0); err != nil {
			return err
		}
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot: %w", err)
	}
	return unix.Unmount(".", unix.MNT_DETACH)
}

func bind(outside, inside string, flags uintptr) error {
	if err := unix.Mount(outside, inside, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", inside, err)
	}
	if flags == 0 {
		return nil
	}
	attribute := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, inside, 0, &attribute); err != nil {
		return fmt.Errorf("read-only %s: %w", inside, err)
	}
	return nil
}

// confined executes a command with the launch capabilities only, as a runtime's exec does.
// The first argument is the list of capability numbers, the rest the command.
func confined(arguments []string) error {
	capabilities := []uint{}
	for _, text := range strings.Split(arguments[0], ",") {
		number, err := strconv.ParseUint(text, 10, 8)
		if err != nil {
			return err
		}
		capabilities = append(capabilities, uint(number))
	}
	return become(capabilities, arguments[1:])
}

// become starts a process as a runtime does: bounded capabilities, no-new-privileges and
// the default seccomp filter for those capabilities.
func become(numbers []uint, arguments []string) error {
	runtime.LockOSThread()
	set := capability.Of(numbers...)
	for number := uint(0); number < 64; number++ {
		if present, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(number), 0, 0, 0); err != nil {
			break
		} else if present == 1 && !set.Has(number) {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(number), 0, 0, 0); err != nil {
				return err
			}
		}
	}
	filter, err := seccomp.Compile(set)
	if err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{}
	for half := range data {
		bits := uint32(set >> (32 * half))
		data[half] = unix.CapUserData{Effective: bits, Permitted: bits}
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := seccomp.Install(filter); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", arguments[0], syscall.Exec(arguments[0], arguments, os.Environ()))
}
