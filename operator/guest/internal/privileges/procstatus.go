package privileges

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/capability"
)

// ErrNotDropped is returned when the container's first process still had its launch rights at the deadline.
var ErrNotDropped = errors.New("the container's program has not been started yet")

const pollInterval = 5 * time.Millisecond

// ProcStatus is what a process shows of itself in /proc/PID/status.
type ProcStatus struct {
	// UID, GID are the effective user and group.
	UID, GID int
	// Bounding is the bounding set of capabilities.
	Bounding capability.Set
}

// ParseProcStatus reads the text of /proc/PID/status, proc_pid_status(5).
func ParseProcStatus(text string) (ProcStatus, error) {
	fields := map[string][]string{}
	for _, line := range strings.Split(text, "\n") {
		key, value, _ := strings.Cut(line, ":")
		fields[key] = strings.Fields(value)
	}
	if len(fields["Uid"]) != 4 || len(fields["Gid"]) != 4 || len(fields["CapBnd"]) != 1 {
		return ProcStatus{}, errors.New("a process status without Uid, Gid or CapBnd")
	}
	uid, errUID := strconv.ParseUint(fields["Uid"][1], 10, 32)
	gid, errGID := strconv.ParseUint(fields["Gid"][1], 10, 32)
	bounding, errSet := strconv.ParseUint(fields["CapBnd"][0], 16, 64)
	if err := errors.Join(errUID, errGID, errSet); err != nil {
		return ProcStatus{}, fmt.Errorf("a process status that cannot be read: %w", err)
	}
	return ProcStatus{UID: int(uid), GID: int(gid), Bounding: capability.Set(bounding)}, nil
}

// WaitDropped waits until process 1 has given up its launch rights, which shows in
// its bounding set, and returns its status.
//
// A command that the kubelet executes before that would otherwise run the
// tenant's bytes in namespaces that are still the Pod's.
func WaitDropped(ctx context.Context) (ProcStatus, error) {
	for {
		text, err := os.ReadFile("/proc/1/status")
		if err != nil {
			return ProcStatus{}, fmt.Errorf("the container's first process cannot be read: %w", err)
		}
		status, err := ParseProcStatus(string(text))
		if err != nil {
			return ProcStatus{}, err
		}
		if !status.Bounding.Has(unix.CAP_SYS_ADMIN) {
			return status, nil
		}
		select {
		case <-ctx.Done():
			return ProcStatus{}, ErrNotDropped
		case <-time.After(pollInterval):
		}
	}
}
