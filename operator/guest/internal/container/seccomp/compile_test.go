package seccomp

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/capability"
)

// verdict runs a filter on a system call as the kernel does; the BPF virtual machine reads
// numbers in network order, so the data is in that order.
func verdict(t *testing.T, kept capability.Set, arch, number uint32, arguments ...uint64) uint32 {
	t.Helper()
	raw, err := Compile(kept)
	if err != nil {
		t.Fatal(err)
	}
	program := make([]bpf.Instruction, len(raw))
	for index, one := range raw {
		program[index] = one.Disassemble()
	}
	machine, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offsetNumber:], number)
	binary.BigEndian.PutUint32(data[offsetArch:], arch)
	for index, argument := range arguments {
		binary.BigEndian.PutUint32(data[offsetArgs+8*index:], uint32(argument))
		binary.BigEndian.PutUint32(data[offsetArgs+8*index+4:], uint32(argument>>32))
	}
	result, err := machine.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(result)
}

func TestFilterDecides(t *testing.T) {
	const x86, i386 = unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_I386
	if tables[0].audit != x86 {
		t.Skip("the numbers are those of amd64")
	}
	denied, absent := uint32(refuse(unix.EPERM)), uint32(refuse(unix.ENOSYS))
	call := func(name string) uint32 { return syscallsAMD64[name] }
	for name, one := range map[string]struct{ got, want uint32 }{
		"read":                   {verdict(t, 0, x86, call("read")), uint32(allow)},
		"execve":                 {verdict(t, 0, x86, call("execve")), uint32(allow)},
		"mount":                  {verdict(t, 0, x86, call("mount")), denied},
		"unknown number":         {verdict(t, 0, x86, 9999), denied},
		"x32":                    {verdict(t, 0, x86, x32Bit|call("read")), absent},
		"other architecture":     {verdict(t, 0, 1, call("read")), absent},
		"thread":                 {verdict(t, 0, x86, call("clone"), unix.CLONE_VM|unix.CLONE_THREAD), uint32(allow)},
		"clone of namespaces":    {verdict(t, 0, x86, call("clone"), unix.CLONE_NEWUSER|unix.CLONE_NEWNET), denied},
		"clone3":                 {verdict(t, 0, x86, call("clone3")), absent},
		"internet socket":        {verdict(t, 0, x86, call("socket"), unix.AF_INET), uint32(allow)},
		"vsock socket":           {verdict(t, 0, x86, call("socket"), unix.AF_VSOCK), denied},
		"alg socket":             {verdict(t, 0, x86, call("socket"), unix.AF_ALG), denied},
		"socket, high half":      {verdict(t, 0, x86, call("socket"), 1<<32|unix.AF_INET), uint32(allow)},
		"vsock, high half":       {verdict(t, 0, x86, call("socket"), 1<<32|unix.AF_VSOCK), denied},
		"alg, high half":         {verdict(t, 0, x86, call("socket"), 1<<32|unix.AF_ALG), denied},
		"later socket family":    {verdict(t, 0, x86, call("socket"), unix.AF_VSOCK+1), uint32(allow)},
		"personality":            {verdict(t, 0, x86, call("personality"), 8), uint32(allow)},
		"strange personality":    {verdict(t, 0, x86, call("personality"), 0x40000), denied},
		"personality, high half": {verdict(t, 0, x86, call("personality"), 1<<32|8), denied},
		"mbind":                  {verdict(t, 0, x86, call("mbind")), denied},
		"mbind with SYS_NICE":    {verdict(t, capability.Of(unix.CAP_SYS_NICE), x86, call("mbind")), uint32(allow)},
		"mount with SYS_ADMIN":   {verdict(t, capability.Of(unix.CAP_SYS_ADMIN), x86, call("mount")), uint32(allow)},
		"i386 read":              {verdict(t, 0, i386, syscalls386["read"]), uint32(allow)},
		"i386 mount":             {verdict(t, 0, i386, syscalls386["mount"]), denied},
	} {
		if one.got != one.want {
			t.Errorf("%s: %#x, want %#x", name, one.got, one.want)
		}
	}
}
