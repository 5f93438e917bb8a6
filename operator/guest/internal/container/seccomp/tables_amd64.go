package seccomp

import "golang.org/x/sys/unix"

// tables are the tables of the architectures whose programs this kernel runs; x32 is refused.
var tables = []table{
	{audit: unix.AUDIT_ARCH_X86_64, numbers: syscallsAMD64, x32: true},
	{audit: unix.AUDIT_ARCH_I386, numbers: syscalls386},
}
