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

	"cloister.dev/guest/internal/container/capability"
)

// ErrNotDropped is returned if process 1 still had its launch capabilities at the deadline.
var ErrNotDropped = errors.New("the container's program has not been started yet")

const pollInterval = 5 * time.Millisecond

// ProcStatus is the part of /proc/PID/status that is read here.
type ProcStatus struct {
	// UID, GID are the effective user and group.
	UID, GID int
	// Bounding is the bounding set of capabilities.
	Bounding capability.Set
}

// ParseProcStatus parses the text of /proc/PID/status, proc_pid_status(5).
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
		return ProcStatus{}, fmt.Errorf("invalid process status: %w", err)
	}
	return ProcStatus{UID: int(uid), GID: int(gid), Bounding: capability.Set(bounding)}, nil
}

// WaitDropped waits until process 1 has dropped its launch capabilities, as its bounding
// set shows, and returns its status.
//
// A command that the kubelet executes earlier would otherwise run the tenant's program in
// the Pod's namespaces.
func WaitDropped(ctx context.Context) (ProcStatus, error) {
	for {
		text, err := os.ReadFile("/proc/1/status")
		if err != nil {
			return ProcStatus{}, fmt.Errorf("the status of process 1 cannot be read: %w", err)
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
