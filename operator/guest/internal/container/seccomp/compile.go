// Package seccomp compiles and installs the second seccomp filter, the one for the tenant's
// program.
//
// The container runtime's filter must allow what the launcher does with SYS_ADMIN (unshare,
// setns, mount). It stays in force for the tenant, so the guest adds the default profile of
// container runtimes for a container without SYS_ADMIN. A system call passes only if both
// filters allow it.
package seccomp

//go:generate go run generate.go

import (
	"errors"
	"fmt"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/capability"
)

// Offsets in struct seccomp_data, seccomp(2).
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// x32Bit marks calls of the x32 ABI, which share the architecture of amd64.
const x32Bit = 0x40000000

// action is the kernel's action for a call: a SECCOMP_RET_* value.
type action uint32

const allow = action(unix.SECCOMP_RET_ALLOW)

func refuse(errno unix.Errno) action { return action(unix.SECCOMP_RET_ERRNO | uint32(errno)) }

// rule is the action for a call whose arguments fulfil all conditions.
type rule struct {
	action action
	args   []specs.LinuxSeccompArg
}

// table is one architecture: its audit number and its system call numbers.
type table struct {
	audit   uint32
	numbers map[string]uint32
	x32     bool
}

// Compile compiles the filter program for a container that keeps some capabilities.
//
// The list of calls is that of the maintained default profile for exactly these
// capabilities. Calls of an architecture that is not in the profile get ENOSYS.
func Compile(kept capability.Set) ([]bpf.RawInstruction, error) {
	profile, err := seccomp.GetDefaultProfile(&specs.Spec{Process: &specs.Process{
		Capabilities: &specs.LinuxCapabilities{Bounding: kept.Names()},
	}})
	if err != nil {
		return nil, err
	}
	if profile.DefaultAction != specs.ActErrno || profile.DefaultErrnoRet == nil {
		return nil, errors.New("the default profile is not an allow list")
	}
	otherwise := refuse(unix.Errno(*profile.DefaultErrnoRet))
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: offsetArch, Size: 4}}
	for _, one := range tables {
		rules, err := rulesOf(profile, one)
		if err != nil {
			return nil, err
		}
		section := compileTable(one, rules, otherwise)
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: one.audit, SkipTrue: 1},
			bpf.Jump{Skip: uint32(len(section))})
		program = append(program, section...)
	}
	program = append(program, bpf.RetConstant{Val: uint32(refuse(unix.ENOSYS))})
	if len(program) > unix.BPF_MAXINSNS {
		return nil, fmt.Errorf("the filter has %d instructions, the kernel takes %d", len(program), unix.BPF_MAXINSNS)
	}
	return bpf.Assemble(program)
}

// rulesOf returns the profile's rules by system call number. A call without conditions
// has one rule; conditions of the same call are alternatives.
func rulesOf(profile *specs.LinuxSeccomp, one table) (map[uint32][]rule, error) {
	rules := map[uint32][]rule{}
	for _, entry := range profile.Syscalls {
		made := rule{args: entry.Args}
		switch {
		case entry.Action == specs.ActAllow:
			made.action = allow
		case entry.Action == specs.ActErrno && entry.ErrnoRet != nil:
			made.action = refuse(unix.Errno(*entry.ErrnoRet))
		default:
			return nil, fmt.Errorf("the default profile has the action %s, which is not supported", entry.Action)
		}
		for _, arg := range entry.Args {
			if !knownOperator(arg.Op) || arg.Index > 5 {
				return nil, fmt.Errorf("the default profile has the condition %s on argument %d, which is not supported", arg.Op, arg.Index)
			}
		}
		for _, name := range entry.Names {
			if name != "socket" && slices.ContainsFunc(entry.Args, isOrder) {
				return nil, fmt.Errorf("the default profile compares the order of an argument of %s, which is not supported", name)
			}
			number, known := one.numbers[name]
			if !known {
				continue // a call of another architecture
			}
			if len(made.args) == 0 {
				rules[number] = []rule{made}
			} else if present := rules[number]; len(present) != 1 || len(present[0].args) > 0 {
				rules[number] = append(present, made)
			}
		}
	}
	return rules, nil
}

// compileTable returns the instructions of one architecture; each path returns an action.
func compileTable(one table, rules map[uint32][]rule, otherwise action) []bpf.Instruction {
	section := []bpf.Instruction{bpf.LoadAbsolute{Off: offsetNumber, Size: 4}}
	if one.x32 {
		section = append(section,
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32Bit, SkipTrue: 1},
			bpf.RetConstant{Val: uint32(refuse(unix.ENOSYS))})
	}
	numbers := make([]uint32, 0, len(rules))
	for number := range rules {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	for index := 0; index < len(numbers); {
		first, last := numbers[index], numbers[index]
		if !isPlain(rules[first]) {
			section = append(section, compileConditions(first, rules[first], otherwise)...)
			index++
			continue
		}
		for index++; index < len(numbers) && numbers[index] == last+1 && isPlain(rules[numbers[index]]); index++ {
			last = numbers[index]
		}
		section = append(section,
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: first, SkipFalse: 2},
			bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: last, SkipTrue: 1},
			bpf.RetConstant{Val: uint32(allow)})
	}
	return append(section, bpf.RetConstant{Val: uint32(otherwise)})
}

func isPlain(rules []rule) bool {
	return len(rules) == 1 && len(rules[0].args) == 0 && rules[0].action == allow
}

// compileConditions returns the instructions of one call with conditions.
func compileConditions(number uint32, rules []rule, otherwise action) []bpf.Instruction {
	block := []bpf.Instruction{bpf.RetConstant{Val: uint32(otherwise)}}
	for index := len(rules) - 1; index >= 0; index-- {
		tail := []bpf.Instruction{bpf.RetConstant{Val: uint32(rules[index].action)}}
		for at := len(rules[index].args) - 1; at >= 0; at-- {
			tail = append(condition(rules[index].args[at], uint8(len(tail))), tail...)
		}
		block = append(tail, block...)
	}
	return append([]bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: number, SkipFalse: uint8(len(block))},
	}, block...)
}

func knownOperator(operator specs.LinuxSeccompOperator) bool {
	return slices.Contains([]specs.LinuxSeccompOperator{
		specs.OpEqualTo, specs.OpLessThan, specs.OpGreaterThan, specs.OpMaskedEqual,
	}, operator)
}

// isOrder reports whether a condition is a less or greater comparison.
func isOrder(arg specs.LinuxSeccompArg) bool {
	return arg.Op == specs.OpLessThan || arg.Op == specs.OpGreaterThan
}

// condition compares one 64-bit argument by its two halves; if the condition is false it
// skips the rest following instructions.
//
// Order is compared on the low half only: it is used for socket(2), whose argument the
// kernel truncates to 32 bits. Over 64 bits a refused family would pass as greater with
// any high bit set.
func condition(arg specs.LinuxSeccompArg, rest uint8) []bpf.Instruction {
	offset := uint32(offsetArgs + 8*arg.Index)
	low := bpf.LoadAbsolute{Off: offset, Size: 4}
	high := bpf.LoadAbsolute{Off: offset + 4, Size: 4}
	valueLow, valueHigh := uint32(arg.Value), uint32(arg.Value>>32)
	switch arg.Op {
	case specs.OpLessThan:
		return []bpf.Instruction{low, bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: valueLow, SkipTrue: rest}}
	case specs.OpGreaterThan:
		return []bpf.Instruction{low, bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: valueLow, SkipFalse: rest}}
	case specs.OpMaskedEqual:
		return []bpf.Instruction{high,
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: valueHigh},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(arg.ValueTwo >> 32), SkipFalse: rest + 3}, low,
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: valueLow},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(arg.ValueTwo), SkipFalse: rest}}
	default:
		return []bpf.Instruction{high,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: valueHigh, SkipFalse: rest + 2}, low,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: valueLow, SkipFalse: rest}}
	}
}
