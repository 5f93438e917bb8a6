package seccomp

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Install installs a compiled filter on the calling thread, irrevocably.
//
// The caller has locked its goroutine to the thread and set no-new-privileges; the program
// that the thread executes inherits the filter.
func Install(program []bpf.RawInstruction) error {
	filter := make([]unix.SockFilter, len(program))
	for index, one := range program {
		filter[index] = unix.SockFilter{Code: one.Op, Jt: one.Jt, Jf: one.Jf, K: one.K}
	}
	header := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&header)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("the kernel refused the system call filter: %w", errno)
	}
	return nil
}
