// Package pattern compiles regular expressions when they are first used.
//
// The parts of an enclave are processes of one program, and each uses few of its expressions. To
// compile all of them at each start costs every process a megabyte of memory.
package pattern

import (
	"regexp"
	"sync"
)

// Lazy returns a function that returns the compiled expression. It panics at its first call if the
// expression is wrong.
func Lazy(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
