// Command cloister-shim is the TLS front of an enclave, a program of its own since it has Caddy in it.
//
// docs/enclave.md describes for an auditor what it does.
package main

import (
	"errors"
	"fmt"
	"os"

	"cloister.dev/guest/internal/foundation/entrypoint"
	"cloister.dev/guest/internal/foundation/measured"
	"cloister.dev/guest/internal/foundation/quiet"
	_ "cloister.dev/guest/internal/foundation/undumpable" // acts in its init function
	"cloister.dev/guest/internal/frontdoor/shim"
)

func main() {
	err := quiet.DiscardHiddenOutput()
	if err == nil {
		err = run(os.Args[1:])
	}
	fmt.Fprintf(os.Stderr, "cloister-shim: %v\n", err)
	if errors.Is(err, measured.ErrNotMeasured) {
		os.Exit(measured.ExitCode)
	}
	os.Exit(entrypoint.ExitCode(err))
}

func run(arguments []string) error {
	if len(arguments) != 2 || arguments[0] != "-config" {
		return errors.New("-config and the path of the configuration must be given, and nothing else")
	}
	return shim.Run(arguments[1])
}
