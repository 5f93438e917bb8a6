package health

import (
	"testing"
	"time"

	"cloister.dev/guest/internal/container/containerspec"
)

func TestNextCountsFailuresAsContainerEngines(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	check := containerspec.HealthCheck{IntervalMillis: 10_000, StartPeriodMillis: 30_000, Retries: 2}
	state := NewState(began)
	for index, step := range []struct {
		at     time.Duration
		code   int
		status string
		streak int
	}{
		{0, 1, Starting, 0},
		{20 * time.Second, 1, Starting, 0},
		{30 * time.Second, 1, Starting, 1},
		{35 * time.Second, 1, Starting, 1}, // a look between two intervals
		{40 * time.Second, 1, Unhealthy, 2},
		{50 * time.Second, 1, Unhealthy, 3},
		{60 * time.Second, 0, Healthy, 0},
		{70 * time.Second, exitTimedOut, Healthy, 1},
		{80 * time.Second, 2, Unhealthy, 2},
	} {
		at := began.Add(step.at)
		state = Next(state, check, Result{Start: at, End: at, ExitCode: step.code})
		if state.Status != step.status || state.FailingStreak != step.streak {
			t.Errorf("step %d: %s %d, want %s %d", index, state.Status, state.FailingStreak, step.status, step.streak)
		}
	}
	quick := Next(NewState(began), check, Result{Start: began, ExitCode: 0})
	if quick.Status != Healthy {
		t.Error("a success in the start period does not count")
	}
	late := Next(quick, check, Result{Start: began.Add(time.Second), ExitCode: 1})
	if late.FailingStreak != 1 {
		t.Error("a failure after a success does not count within the start period")
	}
}

// spec: 12.12, 43.7
func TestAStartingContainerIsLookedAtMoreOften(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	check := containerspec.HealthCheck{IntervalMillis: 30_000, StartPeriodMillis: 600_000, Retries: 3}
	state, at := NewState(began), began
	if Wait(state, check) != 0 {
		t.Error("the first check waits")
	}
	for index, want := range []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
		4 * time.Second, 5 * time.Second, 5 * time.Second} {
		state = Next(state, check, Result{Start: at, End: at, ExitCode: 1})
		if got := Wait(state, check); got != want {
			t.Errorf("after %d checks: %s, want %s", index+1, got, want)
		}
		at = at.Add(want)
	}
	if got := Wait(state, containerspec.HealthCheck{IntervalMillis: 100}); got != 100*time.Millisecond {
		t.Errorf("longer than the interval: %s", got)
	}
	if got := Wait(Next(state, check, Result{Start: at, End: at}), check); got != 30*time.Second {
		t.Errorf("a healthy container: %s", got)
	}
}
