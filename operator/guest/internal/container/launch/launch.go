// Package launch is `guest exec`: it runs before every container's program, isolates the
// container, drops the launch capabilities and executes the program in its own process,
// so that process 1, signals and exit codes are those of the program.
package launch

import (
	"errors"
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

	"cloister.dev/guest/internal/container/account"
	"cloister.dev/guest/internal/container/capability"
	"cloister.dev/guest/internal/container/containerspec"
	"cloister.dev/guest/internal/container/privileges"
	"cloister.dev/guest/internal/container/shell"
	"cloister.dev/guest/internal/foundation/entrypoint"
	"cloister.dev/guest/internal/foundation/paths"
	"cloister.dev/guest/internal/foundation/report"
)

// Run starts the container of a spec. It returns only on an error; nothing of the
// tenant's has run then.
func Run(document string) error {
	container, err := containerspec.Read(document)
	if err != nil {
		return explain(err)
	}
	// Namespaces, identity and filter are per thread, and execve keeps the calling thread.
	runtime.LockOSThread()
	if container.Agent == nil {
		return start(document, container, nil)
	}
	checker, err := newChecker(document, container)
	if err != nil {
		return err
	}
	launch, err := report.BeginLaunch(container.Agent.Socket, checker.digest(), deadlineOf(container.Agent.DeadlineSeconds))
	if err != nil {
		return err
	}
	err = start(document, container, checker)
	launch.Failed(err, entrypoint.ExitCode(err))
	return err
}

// explain writes why a document is not used to the termination message, since the agent, to which
// other failures are reported, is in the document.
func explain(reason error) error {
	return errors.Join(reason, os.WriteFile(paths.TerminationLog, []byte(reason.Error()), 0o644))
}

// start isolates the calling, locked thread and executes the container's program.
func start(document string, container containerspec.Spec, left *checker) error {
	for _, place := range container.GuestPaths {
		if err := checkGuestMount(place); err != nil {
			return err
		}
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
	arguments, err := container.Arguments()
	if err != nil {
		return err
	}
	if container.Shells != nil {
		return execPID1(document, container, user, left)
	}
	return execProgram(container, user, arguments, left)
}

// execPID1 keeps the guest as process 1 of a debug container, with the privileges of the
// tenant's program, which it then starts as its child.
func execPID1(path string, container containerspec.Spec, user account.User, left *checker) error {
	socket, err := shell.Listen(container.Shells.Socket)
	if err != nil {
		return err
	}
	guest, err := os.Executable()
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(socket) // else the finalizer would close the descriptor
	number := socket.Fd()
	return execProgram(container, user, []string{guest, shell.PID1Command, "-spec", path, "-socket", strconv.Itoa(int(number))}, left, number)
}

// checkGuestMount refuses a guest directory that the container could move: the kubelet
// would then start the tenant's program with the launch capabilities. A mount cannot be
// moved; below a symbolic link of the image it could be bypassed.
func checkGuestMount(target string) error {
	for at := target; at != "/"; at = path.Dir(at) {
		about, err := os.Lstat(at)
		if err != nil {
			return fmt.Errorf("the guest's directory %s: %w", target, err)
		}
		if about.Mode()&os.ModeSymlink != 0 {
			return fmt.Errorf("the image has a symbolic link at %s, the path of the guest's directory; remove it from the image", at)
		}
	}
	first := "/" + strings.SplitN(target, "/", 3)[1]
	var about unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, first, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &about); err != nil {
		return fmt.Errorf("the guest's directory %s: %w", first, err)
	}
	if about.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return fmt.Errorf("the guest's directory %s is not a mount point", first)
	}
	return nil
}

// ResolveUser resolves the container's user with the files of its image.
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

// execProgram drops the calling, locked thread's privileges, leaves a checker behind if there
// is one, and executes a program of the tenant's in this process. It returns only on an error.
// Only the standard streams and the descriptors in kept stay open.
func execProgram(container containerspec.Spec, user account.User, arguments []string, left *checker, kept ...uintptr) error {
	capabilities, err := capability.ParseKept(container.Capabilities)
	if err != nil {
		return err
	}
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("open files could not be closed for the program: %w", err)
	}
	environment := Environment(os.Environ(), container, user)
	if err := privileges.Drop(privileges.Identity{UID: user.UID, GID: user.GID, Groups: user.Groups, Kept: capabilities}); err != nil {
		return err
	}
	// From here on the tenant's privileges apply.
	if err := os.Chdir(container.Directory()); err != nil {
		return fmt.Errorf("%w: the working directory: %w", entrypoint.ErrNotExecutable, err)
	}
	file, err := find(arguments[0], environment)
	if err != nil {
		return err
	}
	if err := left.start(environment); err != nil {
		return err
	}
	// After the checker's start, which would inherit them.
	for _, descriptor := range kept {
		if _, err := unix.FcntlInt(descriptor, unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("a file could not be kept open for the program: %w", err)
		}
	}
	return replaceProcess(container, file, arguments, environment)
}

// Become executes a program of the tenant's in this process, whose privileges have been dropped
// before. It returns only on an error.
func Become(container containerspec.Spec, arguments []string) error {
	file, err := find(arguments[0], os.Environ())
	if err != nil {
		return err
	}
	return replaceProcess(container, file, arguments, os.Environ())
}

func find(name string, environment []string) (string, error) {
	search, _ := entrypoint.Value(environment, "PATH")
	return entrypoint.Find(name, search)
}

// replaceProcess sets the limits and executes the program.
func replaceProcess(container containerspec.Spec, file string, arguments, environment []string) error {
	// The last step: with a limit of processes in force, the guest may not be able to start threads.
	if err := setLimits(container.Limits); err != nil {
		return err
	}
	err := syscall.Exec(file, arguments, environment)
	return fmt.Errorf("%q: %w: %w", file, entrypoint.ErrNotExecutable, err)
}

// Environment returns the program's environment: the container's, with a PATH, and with
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

// makeWorkingDirectory creates the working directory if it is not in the image.
func makeWorkingDirectory(directory string, user account.User) error {
	if _, err := os.Stat(directory); err == nil {
		return nil
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return fmt.Errorf("the working directory %s is not in the image and cannot be created: %w", directory, err)
	}
	// Errors are ignored: without CHOWN the directory stays root's, as in container engines.
	_ = os.Chown(directory, user.UID, user.GID)
	return nil
}

// setLimits sets resource limits. One that the runtime has set lower stays: it cannot be
// raised without privileges over the node.
func setLimits(limits map[string]containerspec.Limit) error {
	for name, limit := range limits {
		var present syscall.Rlimit
		if err := syscall.Getrlimit(containerspec.LimitNumber(name), &present); err != nil {
			return fmt.Errorf("limits[%s]: cannot be read: %w", name, err)
		}
		value := syscall.Rlimit{Cur: min(uint64(limit.Soft), present.Max), Max: min(uint64(limit.Hard), present.Max)}
		// Package syscall's function: with it, execve does not restore the previous file limit.
		if err := syscall.Setrlimit(containerspec.LimitNumber(name), &value); err != nil {
			return fmt.Errorf("limits[%s]: cannot be set to %d:%d: %w", name, limit.Soft, limit.Hard, err)
		}
	}
	return nil
}

func deadlineOf(seconds int) time.Time {
	return time.Now().Add(time.Duration(seconds) * time.Second)
}
