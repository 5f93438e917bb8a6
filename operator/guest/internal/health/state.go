// Package health is `guest probe`: a container's health check with the states and times
// of container engines, stored in a file between two calls of the kubelet.
package health

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"cloister.dev/guest/internal/containerspec"
	"cloister.dev/guest/internal/report"
	"cloister.dev/guest/internal/strictjson"
)

// States of a container's health.
const (
	Starting  = "starting"
	Healthy   = "healthy"
	Unhealthy = "unhealthy"
)

// MaxOutput is the maximum number of bytes of a check's output that are stored.
const MaxOutput = 4096

// exitTimedOut is the exit code of a check that did not exit by itself.
const exitTimedOut = -1

// State is the content of the state file.
type State struct {
	// Version is 1.
	Version int `json:"version"`
	// StartTicks identifies one run of the container: the start time of its process 1
	// in clock ticks since boot.
	StartTicks uint64 `json:"first"`
	// StartedAt is the same as a time.
	StartedAt time.Time `json:"startedAt"`
	// Status is Starting, Healthy or Unhealthy.
	Status string `json:"status"`
	// FailingStreak is the number of consecutive failures that count.
	FailingStreak int `json:"failingStreak"`
	// Last is the last check; nil before the first.
	Last *Result `json:"last"`
}

// Result is the result of one check.
type Result struct {
	// Start and End are the times of its start and end.
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// ExitCode is 0 for healthy; -1 if the check timed out.
	ExitCode int `json:"exitCode"`
	// Output is its output, at most MaxOutput bytes.
	Output string `json:"output"`
}

// NewState returns the state of a container that has just started.
func NewState(first uint64, startedAt time.Time) State {
	return State{Version: containerspec.Version, StartTicks: first, StartedAt: startedAt, Status: Starting}
}

// report returns the report to the enclave's agent.
func (s State) report() report.HealthReport {
	told := report.HealthReport{Status: s.Status, FailingStreak: s.FailingStreak}
	if last := s.Last; last != nil {
		told.LastStart, told.LastEnd, told.LastExitCode, told.Output = &last.Start, &last.End, &last.ExitCode, last.Output
	}
	return told
}

// Due reports whether the next check is due: the first one immediately, then one interval
// after the end of the last one.
func Due(state State, check containerspec.HealthCheck, now time.Time) bool {
	return state.Last == nil || !now.Before(state.Last.End.Add(check.Interval()))
}

// Next returns the state after a check.
//
// A success makes the container healthy. A failure counts unless the container is still
// starting and the check began within the start period, or within the first interval:
// container engines run their first check after one interval; this one runs immediately,
// but must not count against a container earlier.
func Next(state State, check containerspec.HealthCheck, result Result) State {
	state.Last = &result
	if result.ExitCode == 0 {
		state.Status, state.FailingStreak = Healthy, 0
		return state
	}
	grace := max(check.StartPeriod(), check.Interval())
	if state.Status == Starting && result.Start.Sub(state.StartedAt) < grace {
		return state
	}
	state.FailingStreak++
	if state.FailingStreak >= check.Retries {
		state.Status = Unhealthy
	}
	return state
}

// ReadState reads the state file; if it is absent or of an earlier run of the container,
// the state is new. The tenant may be able to write the file: if it cannot be read, it
// counts as absent.
func ReadState(path string, first uint64, startedAt time.Time) State {
	state, err := strictjson.DecodeFile[State](path)
	known := state.Status == Starting || state.Status == Healthy || state.Status == Unhealthy
	if err != nil || state.StartTicks != first || state.Version != containerspec.Version || !known || state.FailingStreak < 0 {
		return NewState(first, startedAt)
	}
	return state
}

// WriteState replaces the state file atomically.
func WriteState(path string, state State) error {
	data, err := json.Marshal(state)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".health-*")
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
