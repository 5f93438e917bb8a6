// Package undumpable protects the process from ptrace and /proc/PID/mem of its own user,
// before nearly everything else.
//
// Privileges are dropped per thread: until execve ends the other threads, they keep those
// that the container was started with, and a process of the tenant with the same user could
// seize one of them. An undumpable process cannot be traced; execve makes the program that
// follows dumpable again.
//
// The package acts in its init function. It imports only package syscall, so that it is
// initialized before nearly all other packages; only package main imports it.
package undumpable

import "syscall"

func init() {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0); errno != 0 {
		// Packages os and fmt are not initialized yet, and nothing of the tenant's may run.
		message := "guest: the process could not be made undumpable\n"
		_, _ = syscall.Write(2, []byte(message))
		syscall.Exit(125)
	}
}
