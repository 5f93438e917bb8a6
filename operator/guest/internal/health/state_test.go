package health

import (
	"testing"
	"time"

	"cloister.dev/guest/internal/containerspec"
)

func TestNextCountsFailuresAsContainerEngines(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	check := containerspec.HealthCheck{IntervalMillis: 10_000, StartPeriodMillis: 30_000, Retries: 2}
	state := NewState(1, began)
	for index, step := range []struct {
		at     time.Duration
		code   int
		status string
		streak int
	}{
		{0, 1, Starting, 0},
		{20 * time.Second, 1, Starting, 0},
		{30 * time.Second, 1, Starting, 1},
		{40 * time.Second, 1, Unhealthy, 2},
		{50 * time.Second, 1, Unhealthy, 3},
		{60 * time.Second, 0, Healthy, 0},
		{70 * time.Second, exitTimedOut, Healthy, 1},
		{80 * time.Second, 2, Unhealthy, 2},
	} {
		at := began.Add(step.at)
		if index > 0 && !Due(state, check, at) {
			t.Errorf("step %d is not due", index)
		}
		state = Next(state, check, Result{Start: at, End: at, ExitCode: step.code})
		if state.Status != step.status || state.FailingStreak != step.streak {
			t.Errorf("step %d: %s %d, want %s %d", index, state.Status, state.FailingStreak, step.status, step.streak)
		}
		if Due(state, check, at.Add(9*time.Second)) {
			t.Errorf("step %d: due before the interval", index)
		}
	}
	quick := Next(NewState(1, began), check, Result{Start: began, ExitCode: 0})
	if quick.Status != Healthy {
		t.Error("a success in the start period does not count")
	}
	late := Next(quick, check, Result{Start: began.Add(time.Second), ExitCode: 1})
	if late.FailingStreak != 1 {
		t.Error("a failure after a success does not count within the start period")
	}
}

func TestStateIsOfOneRunOfTheContainer(t *testing.T) {
	path, began := t.TempDir()+"/health", time.Now().UTC()
	state := Next(NewState(7, began), containerspec.HealthCheck{Retries: 1}, Result{Output: "ok"})
	if err := WriteState(path, state); err != nil {
		t.Fatal(err)
	}
	if got := ReadState(path, 7, began); got.Status != Healthy || got.Last.Output != "ok" {
		t.Errorf("read %+v", got)
	}
	if got := ReadState(path, 8, began); got.Status != Starting || got.Last != nil {
		t.Errorf("another life read %+v", got)
	}
}

func FuzzParseStart(f *testing.F) {
	f.Add("1 (a) b) S 0 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1")
	f.Add(")")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = ParseStart(text)
	})
	if ticks, err := ParseStart("1 (a) b) S 0 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1"); err != nil || ticks != 4711 {
		f.Errorf("%d, %v", ticks, err)
	}
}
