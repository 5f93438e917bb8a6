// Package health is `guest probe`: a container's health check with the states
// and times of container engines, kept in a file between two calls of the kubelet.
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

// MaxOutput is the number of bytes of a check's output that are kept.
const MaxOutput = 4096

// exitTimedOut is the exit code of a check that did not end by itself.
const exitTimedOut = -1

// State is the content of the state file.
type State struct {
	// Version is 1.
	Version int `json:"version"`
	// First tells one life of the container from the next: when its process 1
	// was started, in clock ticks since the kernel's start.
	StartTicks uint64 `json:"first"`
	// StartedAt is the same as a time.
	StartedAt time.Time `json:"startedAt"`
	// Status is Starting, Healthy or Unhealthy.
	Status string `json:"status"`
	// FailingStreak is the number of failures in a row that count.
	FailingStreak int `json:"failingStreak"`
	// Last is the last check; null before the first.
	Last *Result `json:"last"`
}

// Result is one check.
type Result struct {
	// Start and End are when it ran.
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// ExitCode is 0 for healthy; -1 when the check did not end in time.
	ExitCode int `json:"exitCode"`
	// Output is what it wrote, at most MaxOutput bytes.
	Output string `json:"output"`
}

// NewState is the state of a container that has just started.
func NewState(first uint64, startedAt time.Time) State {
	return State{Version: containerspec.Version, StartTicks: first, StartedAt: startedAt, Status: Starting}
}

// report is the state as the enclave's agent is told.
func (s State) report() report.HealthReport {
	told := report.HealthReport{Status: s.Status, FailingStreak: s.FailingStreak}
	if last := s.Last; last != nil {
		told.LastStart, told.LastEnd, told.LastExitCode, told.Output = &last.Start, &last.End, &last.ExitCode, last.Output
	}
	return told
}

// Due reports whether the next check is to run: at once for the first, then one
// interval after the last one ended.
func Due(state State, check containerspec.HealthCheck, now time.Time) bool {
	return state.Last == nil || !now.Before(state.Last.End.Add(check.Interval()))
}

// Next is the state after a check.
//
// A success makes the container healthy. A failure counts unless the container
// is still starting and the check began within the start period, or within the
// first interval: container engines run their first check after one interval,
// this one is run at once but must not count against a container earlier.
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

// ReadState reads the state file; absent, or of an earlier life of the container,
// it is a new state. The file may lie where the tenant can write: whatever cannot
// be read counts as absent.
func ReadState(path string, first uint64, startedAt time.Time) State {
	state, err := strictjson.DecodeFile[State](path)
	known := state.Status == Starting || state.Status == Healthy || state.Status == Unhealthy
	if err != nil || state.StartTicks != first || state.Version != containerspec.Version || !known || state.FailingStreak < 0 {
		return NewState(first, startedAt)
	}
	return state
}

// WriteState replaces the state file in one step.
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
