// Package capability implements names and sets of Linux capabilities.
//
// The names are those of capabilities(7) without the prefix CAP_, as the
// configuration file writes them.
package capability

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Set is a set of capabilities, one bit for each number.
type Set uint64

var numbers = map[string]uint{
	"CHOWN":              unix.CAP_CHOWN,
	"DAC_OVERRIDE":       unix.CAP_DAC_OVERRIDE,
	"DAC_READ_SEARCH":    unix.CAP_DAC_READ_SEARCH,
	"FOWNER":             unix.CAP_FOWNER,
	"FSETID":             unix.CAP_FSETID,
	"KILL":               unix.CAP_KILL,
	"SETGID":             unix.CAP_SETGID,
	"SETUID":             unix.CAP_SETUID,
	"SETPCAP":            unix.CAP_SETPCAP,
	"LINUX_IMMUTABLE":    unix.CAP_LINUX_IMMUTABLE,
	"NET_BIND_SERVICE":   unix.CAP_NET_BIND_SERVICE,
	"NET_BROADCAST":      unix.CAP_NET_BROADCAST,
	"NET_ADMIN":          unix.CAP_NET_ADMIN,
	"NET_RAW":            unix.CAP_NET_RAW,
	"IPC_LOCK":           unix.CAP_IPC_LOCK,
	"IPC_OWNER":          unix.CAP_IPC_OWNER,
	"SYS_MODULE":         unix.CAP_SYS_MODULE,
	"SYS_RAWIO":          unix.CAP_SYS_RAWIO,
	"SYS_CHROOT":         unix.CAP_SYS_CHROOT,
	"SYS_PTRACE":         unix.CAP_SYS_PTRACE,
	"SYS_PACCT":          unix.CAP_SYS_PACCT,
	"SYS_ADMIN":          unix.CAP_SYS_ADMIN,
	"SYS_BOOT":           unix.CAP_SYS_BOOT,
	"SYS_NICE":           unix.CAP_SYS_NICE,
	"SYS_RESOURCE":       unix.CAP_SYS_RESOURCE,
	"SYS_TIME":           unix.CAP_SYS_TIME,
	"SYS_TTY_CONFIG":     unix.CAP_SYS_TTY_CONFIG,
	"MKNOD":              unix.CAP_MKNOD,
	"LEASE":              unix.CAP_LEASE,
	"AUDIT_WRITE":        unix.CAP_AUDIT_WRITE,
	"AUDIT_CONTROL":      unix.CAP_AUDIT_CONTROL,
	"SETFCAP":            unix.CAP_SETFCAP,
	"MAC_OVERRIDE":       unix.CAP_MAC_OVERRIDE,
	"MAC_ADMIN":          unix.CAP_MAC_ADMIN,
	"SYSLOG":             unix.CAP_SYSLOG,
	"WAKE_ALARM":         unix.CAP_WAKE_ALARM,
	"BLOCK_SUSPEND":      unix.CAP_BLOCK_SUSPEND,
	"AUDIT_READ":         unix.CAP_AUDIT_READ,
	"PERFMON":            unix.CAP_PERFMON,
	"BPF":                unix.CAP_BPF,
	"CHECKPOINT_RESTORE": unix.CAP_CHECKPOINT_RESTORE,
}

// keepable are the capabilities that a container may keep; the others allow an escape
// or undo what the launcher did.
var keepable = []string{
	"CHOWN", "DAC_OVERRIDE", "FOWNER", "IPC_LOCK", "KILL", "NET_BIND_SERVICE",
	"SETFCAP", "SETGID", "SETUID", "SYS_NICE", "SYS_RESOURCE",
}

// Of returns a set of capability numbers.
func Of(members ...uint) Set {
	var set Set
	for _, number := range members {
		set |= 1 << number
	}
	return set
}

// Has reports whether the set contains a capability number.
func (s Set) Has(number uint) bool { return s&(1<<number) != 0 }

// Names returns the names of the members with the prefix CAP_, sorted.
func (s Set) Names() []string {
	names := []string{}
	for name, number := range numbers {
		if s.Has(number) {
			names = append(names, "CAP_"+name)
		}
	}
	slices.Sort(names)
	return names
}

// ParseKept parses the names of the capabilities that a container keeps.
//
// It fails for an unknown name, a repeated one, one with the prefix CAP_ and
// one that no container may keep.
func ParseKept(names []string) (Set, error) {
	var set Set
	for index, name := range names {
		number, known := numbers[name]
		switch {
		case strings.HasPrefix(name, "CAP_"):
			return 0, fmt.Errorf("capabilities[%d]: write %q without the prefix CAP_", index, name)
		case !known:
			return 0, fmt.Errorf("capabilities[%d]: %q is not a Linux capability", index, name)
		case !slices.Contains(keepable, name):
			return 0, fmt.Errorf("capabilities[%d]: no container may keep %s; allowed are %s",
				index, name, strings.Join(keepable, ", "))
		case set.Has(number):
			return 0, fmt.Errorf("capabilities[%d]: %s is given twice", index, name)
		}
		set |= 1 << number
	}
	return set, nil
}
