package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"cloister.dev/guest/internal/foundation/report"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func after(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }

func newBoot() *boot { return &boot{StartedAt: began, Outcomes: map[string]outcome{}} }

func newRecords(containers []Container) map[string]*record {
	records := map[string]*record{}
	for _, one := range containers {
		records[one.Name] = &record{}
	}
	return records
}

// spec: 43.7
func TestBootCompletesWhenAllStagesAreOK(t *testing.T) {
	containers := valid().Containers
	records, b := newRecords(containers), newBoot()
	for _, stage := range stageOrder {
		if stage != stageContainers {
			b.settle(stage, statusOK, "", after(1))
		}
	}
	check := func(second int, complete bool) {
		t.Helper()
		b.checkContainers(containers, records, after(second))
		b.complete(after(second))
		if (b.CompletedAt != nil) != complete || b.Failure != nil {
			t.Fatalf("after %d s: %+v", second, b)
		}
	}
	check(1, false)
	records["web"].launch(7, "", after(2))
	records["job"].launch(8, "", after(2))
	check(2, false)
	records["web"].start(after(3))
	records["job"].start(after(3))
	at := after(4)
	records["job"].end(&at)
	check(4, false)
	records["web"].check(report.HealthReport{Status: healthStarting, FailingStreak: 0}, after(5))
	check(5, false)
	records["web"].check(report.HealthReport{Status: healthHealthy}, after(6))
	check(6, false) // the runtime may still report that the job failed
	check(9, true)
	shown := b.stages(containers, records, after(100)).Stages[10].Stages
	want := "web ok 6s [pull ok 2s, start ok 1s, healthy ok 3s] job ok 3s [pull ok 2s, start ok 1s, healthy skipped 0s]"
	if got := describe(shown); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// Later events do not undo a completed boot.
	records["web"].check(report.HealthReport{Status: healthUnhealthy, FailingStreak: 3}, after(200))
	check(200, true)
	if records["web"].isAsExpected(containers[0], after(200)) {
		t.Error("an unhealthy container is fine")
	}
}

func describe(stages []Stage) string {
	words := []string{}
	for _, one := range stages {
		steps := []string{}
		for _, step := range one.Stages {
			steps = append(steps, fmt.Sprintf("%s %s %s", step.Name, step.Status, time.Duration(step.DurationNS)))
		}
		words = append(words, fmt.Sprintf("%s %s %s [%s]", one.Name, one.Status, time.Duration(one.DurationNS), strings.Join(steps, ", ")))
	}
	return strings.Join(words, " ")
}

func TestFailuresOfABoot(t *testing.T) {
	zero, one, notFound := 0, 1, 127
	healthy := &report.HealthReport{Status: healthHealthy}
	unhealthy := &report.HealthReport{Status: healthUnhealthy, FailingStreak: 2, Output: "refused\n"}
	for name, step := range map[string]struct {
		about  Container
		known  record
		reason string
		text   string
	}{
		"unhealthy":             {Container{Name: "web", HealthWithinMillis: 60_000}, record{Phase: phaseRunning, Health: unhealthy}, reasonHealth, "failed 2 times in a row. Its last output: refused"},
		"unhealthy and ended":   {Container{Name: "web", Restart: restartAlways, HealthWithinMillis: 60_000}, record{Phase: phaseExited, Health: unhealthy}, "", ""},
		"no program":            {Container{Name: "web", Restart: restartNo}, record{Phase: phaseExited, ExitCode: &notFound, Error: "not found"}, reasonBoot, "could not be started: not found"},
		"no program, again":     {Container{Name: "web", Restart: restartAlways}, record{Phase: phaseExited, ExitCode: &notFound, Error: "not found"}, "", ""},
		"ended with a check":    {Container{Name: "web", Restart: restartNo, HealthWithinMillis: 60_000}, record{Phase: phaseExited}, reasonBoot, "ended before it was healthy"},
		"ended just now":        {Container{Name: "web", Restart: restartNo, HealthWithinMillis: 60_000}, record{Phase: phaseExited, FinishedAt: &began}, "", ""},
		"ended, may come back":  {Container{Name: "web", Restart: restartFail, HealthWithinMillis: 60_000}, record{Phase: phaseExited}, "", ""},
		"ended well, no return": {Container{Name: "web", Restart: restartFail, HealthWithinMillis: 60_000}, record{Phase: phaseExited, ExitCode: &zero}, reasonBoot, "ended before it was healthy"},
		"ended badly, returns":  {Container{Name: "web", Restart: restartFail, HealthWithinMillis: 60_000}, record{Phase: phaseExited, ExitCode: &one}, "", ""},
		"finished":              {Container{Name: "web", Restart: restartNo}, record{Phase: phaseExited}, "", ""},
		"never checked":         {Container{Name: "web", HealthWithinMillis: 1}, record{Phase: phaseRunning, StartedAt: &began}, reasonHealth, "was not run within 1ms of its start"},
		"silent":                {Container{Name: "web", HealthWithinMillis: 60_000, CheckEveryMillis: 500}, record{Phase: phaseRunning, Health: healthy, CheckedAt: &began}, reasonHealth, "has not reported since 2026-01-02T03:04:05Z"},
		"not silent yet":        {Container{Name: "web", HealthWithinMillis: 60_000, CheckEveryMillis: 1000}, record{Phase: phaseRunning, Health: healthy, CheckedAt: &began}, "", ""},
		"not started":           {Container{Name: "web", HealthWithinMillis: 60_000}, record{}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoot()
			b.checkContainers([]Container{step.about}, map[string]*record{"web": &step.known}, after(1))
			if step.reason == "" {
				if b.Failure != nil {
					t.Fatalf("failed: %+v", b.Failure)
				}
				return
			}
			if b.Failure == nil || b.Failure.Reason != step.reason || !strings.Contains(b.Failure.Message, step.text) {
				t.Fatalf("%+v", b.Failure)
			}
			if strings.Contains(b.Outcomes[stageContainers].Detail, "refused") {
				t.Errorf("the stage, which is public, has the output of the health check: %+v", b.Outcomes)
			}
			if shown := b.stages([]Container{step.about}, map[string]*record{"web": &step.known}, after(2)); shown.Stages[10].Status != statusFailed || shown.Stages[10].Stages[0].Status != statusFailed || shown.CompletedAt != nil {
				t.Errorf("%+v", shown)
			}
		})
	}
}

func TestPhasesOfAContainer(t *testing.T) {
	known := &record{}
	known.launch(5, "a", after(1))
	known.launch(5, "a", after(2)) // reported again, since the agent exited before it responded
	if known.Launches != 1 || !known.FirstLaunch.Equal(after(1)) {
		t.Errorf("%+v", known)
	}
	known.start(after(3))
	known.Phase = phaseUnknown
	known.adopt(5, "a", after(4))
	if known.Phase != phaseRunning || known.Launches != 1 || !known.StartedAt.Equal(after(3)) {
		t.Errorf("adopted: %+v", known)
	}
	known.Phase = phaseUnknown
	known.adopt(6, "b", after(5))
	if known.Launches != 2 || known.StartedAt != nil || known.ContainerID != "b" || !known.FirstStart.Equal(after(3)) {
		t.Errorf("another life: %+v", known)
	}
	known.end(nil)
	at := after(9)
	known.end(&at)
	if known.FinishedAt != nil {
		t.Error("a moment was made up")
	}
	known.launch(7, "c", after(10))
	known.fail("no such file", 126)
	if state := showContainer(Container{Name: "x", Restart: restartNo}, known, after(10)); state.RestartCount != 2 || state.Error != "no such file" || state.ExitCode != 0 {
		t.Errorf("%+v", state)
	}
	known.end(&at)
	if state := showContainer(Container{Name: "x", Restart: restartNo}, known, after(10)); state.ExitCode != 126 || state.Status != "exited" {
		t.Errorf("%+v", state)
	}
}

func FuzzCounters(f *testing.F) {
	f.Add("usage_usec 1500\nuser_usec 1\n", "inactive_file 10\n")
	f.Add("1500000\n", "inactive_file 1\ntotal_inactive_file 10\n")
	f.Fuzz(func(t *testing.T, first, second string) {
		if used, ok := ParseCPU(first); ok && used < 0 {
			t.Errorf("cpu %d", used)
		}
		if used, ok := ParseMemory(first, second); ok && used < 0 {
			t.Errorf("memory %d", used)
		}
	})
	for _, text := range []string{"usage_usec 1500\nuser_usec 1\n", "1500000\n"} {
		if used, ok := ParseCPU(text); !ok || used != 1500*time.Microsecond {
			f.Errorf("%q: %s %t", text, used, ok)
		}
	}
	for _, detail := range []string{"inactive_file 10\n", "inactive_file 1\ntotal_inactive_file 10\n"} {
		if used, ok := ParseMemory("110\n", detail); !ok || used != 100 {
			f.Errorf("%q: %d %t", detail, used, ok)
		}
	}
	if kills, ok := field("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", "oom_kill"); !ok || kills != 2 {
		f.Errorf("%d %t", kills, ok)
	}
}
