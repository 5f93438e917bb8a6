// Package quiet discards what this program, and what it becomes, prints where nobody may read it.
//
// The host of a confidential machine may not read what runs there: the rules of the machine's agent
// refuse logs, but of debug enclaves. A pipe that nobody reads fills, and then whoever writes to it
// waits for ever.
package quiet

import (
	"fmt"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/measured"
)

// Apply discards output if the measurement says that nobody may read it. Where there is no
// measurement yet, as for `guest keep` at its start, nothing is discarded.
func Apply() error {
	measurement, err := measured.Load()
	if err != nil || !measurement.HidesOutput() {
		return nil // Whoever needs the measurement reports that it is missing
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
