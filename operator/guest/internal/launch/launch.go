// Package launch is `guest exec`: it stands in front of every container's
// program, isolates the container, takes the launch rights away and executes the
// program in its own place, so that process 1, signals and exit codes are those
// of the program.
package launch

import (
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/account"
	"cloister.dev/guest/internal/capability"
	"cloister.dev/guest/internal/containerspec"
	"cloister.dev/guest/internal/entrypoint"
	"cloister.dev/guest/internal/privileges"
	"cloister.dev/guest/internal/report"
	"cloister.dev/guest/internal/shell"
)

// Run starts the container that a document describes. It returns only when that
// failed; nothing of the tenant's has run then.
func Run(document string) error {
	container, err := containerspec.Read(document)
	if err != nil {
		return err
	}
	// Namespaces, identity and filter are of one thread, and execve keeps that thread.
	runtime.LockOSThread()
	if container.Agent == nil {
		return start(document, container)
	}
	told, err := report.BeginLaunch(container.Agent.Socket, deadlineOf(container.Agent.DeadlineSeconds))
	if err != nil {
		return err
	}
	err = start(document, container)
	told.Failed(err, entrypoint.ExitCode(err))
	return err
}

// start isolates the calling, locked thread and becomes the container's program.
func start(document string, container containerspec.Spec) error {
	for _, place := range container.GuestPaths {
		if err := checkGuestMount(place); err != nil {
			return err
		}
	}
	if err := restrictHealthState(container.Health); err != nil {
		return err
	}
	if err := isolate(container); err != nil {
		return err
	}
	user, err := ResolveUser(container)
	if err != nil {
		return err
	}
	if err := makeWorkingDirectory(container.Directory(), user); err != nil {
		return err
	}
	if err := setLimits(container.Limits); err != nil {
		return err
	}
	arguments, err := container.Arguments()
	if err != nil {
		return err
	}
	if container.Shells != nil {
		return execPID1(document, container, user)
	}
	return ExecProgram(container, user, arguments)
}

// execPID1 keeps the guest as process 1 of a debug container: with the rights of the
// tenant's program, which it then starts as its child.
func execPID1(path string, container containerspec.Spec, user account.User) error {
	socket, err := shell.Listen(container.Shells.Socket)
	if err != nil {
		return err
	}
	guest, err := os.Executable()
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(socket) // or its end would close the descriptor
	number := socket.Fd()
	return ExecProgram(container, user, []string{guest, shell.PID1Command, "-spec", path, "-socket", strconv.Itoa(int(number))}, number)
}

// checkGuestMount refuses a place of the guest's that the container could move: what
// the kubelet starts next would then be the tenant's program, with launch rights.
// A mount stays where it is; below a symbolic link of the image it could be bypassed.
func checkGuestMount(target string) error {
	for at := target; at != "/"; at = path.Dir(at) {
		about, err := os.Lstat(at)
		if err != nil {
			return fmt.Errorf("the guest's directory %s: %w", target, err)
		}
		if about.Mode()&os.ModeSymlink != 0 {
			return fmt.Errorf("the image has a symbolic link at %s, where the guest's directory belongs; remove it from the image", at)
		}
	}
	first := "/" + strings.SplitN(target, "/", 3)[1]
	var about unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, first, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &about); err != nil {
		return fmt.Errorf("the guest's directory %s: %w", first, err)
	}
	if about.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return fmt.Errorf("the guest's directory %s is no mount of its own", first)
	}
	return nil
}

// restrictHealthState keeps other users than root from the health state: volumes of the
// node may be written by everybody.
func restrictHealthState(check *containerspec.HealthCheck) error {
	if check == nil {
		return nil
	}
	if err := os.Chmod(path.Dir(check.StateFile), 0o755); err != nil {
		return fmt.Errorf("the health state cannot be kept from other users: %w", err)
	}
	return nil
}

// ResolveUser resolves the container's user by the files of its image.
func ResolveUser(container containerspec.Spec) (account.User, error) {
	passwd, err := account.ReadFile("/etc/passwd")
	if err != nil {
		return account.User{}, err
	}
	group, err := account.ReadFile("/etc/group")
	if err != nil {
		return account.User{}, err
	}
	present, err := unix.Getgroups()
	if err != nil {
		return account.User{}, fmt.Errorf("the Pod's groups cannot be read: %w", err)
	}
	// Runtimes list the launcher's own group, root's, among the others.
	present = slices.DeleteFunc(present, func(group int) bool { return group == unix.Getgid() })
	return account.Resolve(container.UserName(), passwd, group, slices.Concat(container.Groups, present))
}

// ExecProgram drops the calling, locked thread's rights and executes a program of the
// tenant's in the place of this process. It returns only on an error. Nothing
// stays open for the program but the standard streams and what is to be left to it.
func ExecProgram(container containerspec.Spec, user account.User, arguments []string, left ...uintptr) error {
	kept, err := capability.ParseKept(container.Capabilities)
	if err != nil {
		return err
	}
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("open files could not be kept from the program: %w", err)
	}
	for _, descriptor := range left {
		if _, err := unix.FcntlInt(descriptor, unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("a file could not be left to the program: %w", err)
		}
	}
	environment := Environment(os.Environ(), container, user)
	if err := privileges.Drop(privileges.Identity{UID: user.UID, GID: user.GID, Groups: user.Groups, Kept: kept}); err != nil {
		return err
	}
	// From here on the tenant's rights decide what can be reached.
	if err := os.Chdir(container.Directory()); err != nil {
		return fmt.Errorf("%w: the working directory: %w", entrypoint.ErrNotExecutable, err)
	}
	search, _ := entrypoint.Value(environment, "PATH")
	file, err := entrypoint.Find(arguments[0], search)
	if err != nil {
		return err
	}
	err = syscall.Exec(file, arguments, environment)
	return fmt.Errorf("%q: %w: %w", file, entrypoint.ErrNotExecutable, err)
}

// Environment is what the program sees: the container's, with a PATH, and with
// the HOME of its user unless the file or image set one.
func Environment(present []string, container containerspec.Spec, user account.User) []string {
	if _, found := entrypoint.Value(present, "PATH"); !found {
		present = entrypoint.WithValue(present, "PATH", entrypoint.DefaultPath)
	}
	if !container.KeepHome {
		present = entrypoint.WithValue(present, "HOME", user.Home)
	}
	return present
}

// makeWorkingDirectory makes the working directory when the image lacks it.
func makeWorkingDirectory(directory string, user account.User) error {
	if _, err := os.Stat(directory); err == nil {
		return nil
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return fmt.Errorf("the working directory %s is not in the image and cannot be made: %w", directory, err)
	}
	// Best effort on purpose: without CHOWN the directory stays root's, as in container engines.
	_ = os.Chown(directory, user.UID, user.GID)
	return nil
}

func setLimits(limits map[string]containerspec.Limit) error {
	for name, limit := range limits {
		value := syscall.Rlimit{Cur: uint64(limit.Soft), Max: uint64(limit.Hard)}
		// Package syscall's, since it knows that the file limit is not to be restored at execve.
		if err := syscall.Setrlimit(containerspec.LimitNumber(name), &value); err != nil {
			return fmt.Errorf("limits[%s]: cannot be set to %d:%d: %w", name, limit.Soft, limit.Hard, err)
		}
	}
	return nil
}

func deadlineOf(seconds int) time.Time {
	return time.Now().Add(time.Duration(seconds) * time.Second)
}
