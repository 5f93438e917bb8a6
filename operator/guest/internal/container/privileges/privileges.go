// Package privileges drops privileges: it is the boundary between the guest's own code and
// the tenant's.
//
// The launcher, the probe and the stop command call Drop on the locked thread that then
// executes the tenant's program. Other threads keep their privileges until execve ends
// them; therefore package undumpable runs first. Nothing here ever restores a privilege.
package privileges

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/capability"
	"cloister.dev/guest/internal/container/seccomp"
)

// Identity is the identity of the tenant's program.
type Identity struct {
	// UID and GID are the user and the primary group.
	UID, GID int
	// Groups are the supplementary groups.
	Groups []int
	// Kept are the kept capabilities; all others are dropped from every set.
	Kept capability.Set
}

// Drop reduces the calling thread's privileges to those of the identity.
//
// The goroutine must be locked to its thread and must end in execve. After an error the
// thread is in an undefined state: the caller must exit.
func Drop(identity Identity) error {
	filter, err := seccomp.Compile(identity.Kept)
	if err != nil {
		return err
	}
	if err := dropSets(identity.Kept); err != nil {
		return err
	}
	if err := setIdentity(identity); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no-new-privileges could not be set: %w", err)
	}
	if err := seal(filter); err != nil {
		return err
	}
	return verify(identity)
}

// dropSets clears the ambient set and drops all but the kept capabilities from the bounding set.
func dropSets(kept capability.Set) error {
	permitted, err := permittedSet()
	if err != nil {
		return err
	}
	if missing := kept &^ permitted; missing != 0 {
		return fmt.Errorf("the container was started without %s, so they cannot be kept; add them to the container's capabilities",
			strings.Join(missing.Names(), ", "))
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("the ambient capabilities could not be cleared: %w", err)
	}
	for number := uint(0); number < 64; number++ {
		present, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(number), 0, 0, 0)
		if err != nil {
			break // beyond the last capability of this kernel
		}
		if present == 0 || kept.Has(number) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(number), 0, 0, 0); err != nil {
			return fmt.Errorf("capability %d could not be dropped from the bounding set (SETPCAP is needed): %w", number, err)
		}
	}
	return nil
}

// setIdentity sets groups, group, user and the final capability sets. The calls are raw:
// those of package syscall act on all threads, which a cgo build refuses.
func setIdentity(identity Identity) error {
	groups := make([]uint32, len(identity.Groups)+1)
	for index, group := range identity.Groups {
		groups[index] = uint32(group)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(identity.Groups)), uintptr(unsafe.Pointer(&groups[0])), 0); errno != 0 {
		return fmt.Errorf("the supplementary groups could not be set: %w", errno)
	}
	runtime.KeepAlive(groups)
	gid, uid := uintptr(identity.GID), uintptr(identity.UID)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return fmt.Errorf("group %d could not be set: %w", identity.GID, errno)
	}
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("the kept capabilities could not be carried over: %w", err)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return fmt.Errorf("user %d could not be set: %w", identity.UID, errno)
	}
	return setCapabilities(identity)
}

// setCapabilities reduces the sets to the kept capabilities. A user other than 0 gets them
// through the ambient set, or execve would drop them.
func setCapabilities(identity Identity) error {
	inheritable := capability.Set(0)
	if identity.UID != 0 {
		inheritable = identity.Kept
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{}
	for half := range data {
		shift := 32 * half
		data[half] = unix.CapUserData{
			Effective:   uint32(identity.Kept >> shift),
			Permitted:   uint32(identity.Kept >> shift),
			Inheritable: uint32(inheritable >> shift),
		}
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("the capabilities could not be dropped: %w", err)
	}
	for number := uint(0); number < 64; number++ {
		if !inheritable.Has(number) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(number), 0, 0); err != nil {
			return fmt.Errorf("capability %d could not be kept: %w", number, err)
		}
	}
	return nil
}

func seal(filter []bpf.RawInstruction) error { return seccomp.Install(filter) }

// verify reads the result back from the kernel: a remaining privilege is an error.
func verify(identity Identity) error {
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return fmt.Errorf("the dropped privileges could not be read back: %w", err)
	}
	kept := uint64(identity.Kept)
	inherited := kept
	if identity.UID == 0 {
		inherited = 0
	}
	want := map[string]string{
		"CapPrm": fmt.Sprintf("%016x", kept), "CapEff": fmt.Sprintf("%016x", kept), "CapBnd": fmt.Sprintf("%016x", kept),
		"CapInh": fmt.Sprintf("%016x", inherited), "CapAmb": fmt.Sprintf("%016x", inherited),
		"NoNewPrivs": "1", "Seccomp": "2",
		"Uid": strings.TrimSuffix(strings.Repeat(strconv.Itoa(identity.UID)+"\t", 4), "\t"),
		"Gid": strings.TrimSuffix(strings.Repeat(strconv.Itoa(identity.GID)+"\t", 4), "\t"),
	}
	for _, line := range strings.Split(string(status), "\n") {
		key, value, _ := strings.Cut(line, ":")
		if expected, asked := want[key]; asked {
			if value = strings.TrimSpace(value); value != expected {
				return fmt.Errorf("after the drop %s is %q instead of %q", key, value, expected)
			}
			delete(want, key)
		}
	}
	if len(want) > 0 {
		return fmt.Errorf("the kernel does not show %d of the dropped privileges", len(want))
	}
	return nil
}

func permittedSet() (capability.Set, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{}
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("the capabilities could not be read: %w", err)
	}
	return capability.Set(data[0].Permitted) | capability.Set(data[1].Permitted)<<32, nil
}
