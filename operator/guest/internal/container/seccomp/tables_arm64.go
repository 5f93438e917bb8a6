package seccomp

import "golang.org/x/sys/unix"

// tables are the tables of the architectures whose programs this kernel runs.
var tables = []table{
	{audit: unix.AUDIT_ARCH_AARCH64, numbers: syscallsARM64},
	{audit: unix.AUDIT_ARCH_ARM, numbers: syscallsARM},
}
