// Package undumpable closes the process to ptrace and /proc/PID/mem of its own
// user, as the first thing that happens in it.
//
// Rights are dropped thread by thread: until execve ends the other threads they
// keep what the container was started with, and a process of the tenant with the
// same user could seize one of them. An undumpable process is out of its reach;
// execve makes the program that follows dumpable again.
//
// The package acts when it is initialized. It depends on package syscall alone,
// so that it comes before nearly everything else; only package main imports it.
package undumpable

import "syscall"

func init() {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0); errno != 0 {
		// Nothing else is initialized yet, and nothing of the tenant's may run.
		message := "guest: the process could not be made undumpable\n"
		_, _ = syscall.Write(2, []byte(message))
		syscall.Exit(125)
	}
}
