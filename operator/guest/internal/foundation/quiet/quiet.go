// Package quiet keeps what a part of the enclave prints from the host of a confidential machine.
package quiet

import (
	"fmt"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/foundation/measured"
)

// DiscardHiddenOutput discards what this program, and the program that it becomes, prints if the
// measurement hides the output. Where there is no measurement yet, as for `guest keep` at its start,
// nothing is discarded.
//
// The host of a confidential machine may not read what runs there: except in debug enclaves, the rules
// of the machine's agent refuse logs. A pipe without a reader fills, and then its writer blocks forever.
func DiscardHiddenOutput() error {
	measurement, err := measured.Load()
	if err != nil || !measurement.HidesOutput() {
		return nil // The parts that need the measurement report that it is missing
	}
	nowhere, err := unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("output cannot be discarded: /dev/null: %w", err)
	}
	for _, stream := range []int{unix.Stdout, unix.Stderr} {
		if err := unix.Dup3(nowhere, stream, 0); err != nil {
			return fmt.Errorf("output cannot be discarded: %w", err)
		}
	}
	return unix.Close(nowhere)
}
