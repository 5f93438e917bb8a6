// Package health is the health check of a container: `guest checker`, which stays in the
// container and runs the check with the states and times of container engines, and
// `guest check`, which becomes one test.
//
// The checker has exactly the rights of the container's program. It is a process that the
// launcher leaves behind before it becomes the program, so the kubelet starts nothing.
package health

import (
	"time"

	"cloister.dev/guest/internal/container/containerspec"
	"cloister.dev/guest/internal/foundation/report"
)

// States of a container's health.
const (
	Starting  = "starting"
	Healthy   = "healthy"
	Unhealthy = "unhealthy"
)

// maxOutput is the maximum number of bytes of a check's output that are stored.
const maxOutput = 4096

// exitTimedOut is the exit code of a check that did not exit in time.
const exitTimedOut = -1

// A container that is starting is looked at more often than its interval: after firstLook, then
// after twice the time, at most every longestLook, so that it need not wait for a whole interval
// once it is healthy.
const (
	firstLook   = 250 * time.Millisecond
	longestLook = 5 * time.Second
)

// State is the state of the health check of one run of a container.
type State struct {
	// StartedAt is when the container's program was started.
	StartedAt time.Time
	// Status is Starting, Healthy or Unhealthy.
	Status string
	// FailingStreak is the number of consecutive failures that count.
	FailingStreak int
	// Looks is the number of checks so far.
	Looks int
	// Counted is the end of the last check that counted; StartedAt before the first.
	Counted time.Time
	// Last is the last check; nil before the first.
	Last *Result
}

// Result is the result of one check.
type Result struct {
	// Start and End are the times of its start and end.
	Start, End time.Time
	// ExitCode is 0 for healthy; -1 if the check timed out.
	ExitCode int
	// Output is its output, at most maxOutput bytes.
	Output string
}

// NewState returns the state of a container that has just started.
func NewState(startedAt time.Time) State {
	return State{StartedAt: startedAt, Status: Starting, Counted: startedAt}
}

// report returns the report to the enclave's agent.
func (s State) report() report.HealthReport {
	reported := report.HealthReport{Status: s.Status, FailingStreak: s.FailingStreak}
	if last := s.Last; last != nil {
		reported.LastStart, reported.LastEnd, reported.LastExitCode, reported.Output = &last.Start, &last.End, &last.ExitCode, last.Output
	}
	return reported
}

// Wait returns the time from the end of the last check to the next one.
func Wait(state State, check containerspec.HealthCheck) time.Duration {
	if state.Last == nil {
		return 0
	}
	if state.Status != Starting {
		return check.Interval()
	}
	look := longestLook
	if doublings := state.Looks - 1; doublings < 5 {
		look = min(look, firstLook<<doublings)
	}
	return min(look, check.Interval())
}

// Next returns the state after a check.
//
// A success makes the container healthy. A failure counts at most once in an interval, and not
// while the container is starting and the check began within the start period, or within the
// first interval: container engines run their first check after one interval; this one runs
// immediately and more often, but must not count against a container earlier.
func Next(state State, check containerspec.HealthCheck, result Result) State {
	state.Last = &result
	state.Looks++
	if result.ExitCode == 0 {
		state.Status, state.FailingStreak, state.Counted = Healthy, 0, result.End
		return state
	}
	if state.Status == Starting {
		grace := max(check.StartPeriod(), check.Interval())
		if result.Start.Sub(state.StartedAt) < grace || (state.FailingStreak > 0 && result.Start.Sub(state.Counted) < check.Interval()) {
			return state
		}
	}
	state.FailingStreak++
	state.Counted = result.End
	if state.FailingStreak >= check.Retries {
		state.Status = Unhealthy
	}
	return state
}
