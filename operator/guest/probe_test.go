package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/containerspec"
	"cloister.dev/guest/internal/health"
)

var probeLine = []string{"/guest/guest", "probe", "-spec", "/guest/spec.json"}

func withCheck(name string, test ...string) containerspec.Spec {
	about := document(name, "trap", "/tmp/ready")
	about.Health = &containerspec.HealthCheck{Test: append([]string{"CMD", "/bin/testprogram"}, test...),
		IntervalMillis: 1, TimeoutMillis: 60000, Retries: 2, StateFile: "/state/health"}
	return about
}

func stateOf(t *testing.T, run *pod, name string) health.State {
	t.Helper()
	var state health.State
	must(t, json.Unmarshal(readFile(t, run.root(name)+"/state/health"), &state))
	return state
}

func TestProbeRunsTheCheckAsTheContainer(t *testing.T) {
	t.Parallel()
	for name, users := range map[string]bool{"host users": false, "user namespace": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := newPod(t, users, onePlan("app"))
			run.startNetwork()
			started := run.start(withCheck("app", "inspect", "/tmp/inspect"))
			started.file("tmp/ready")
			// Like a runtime that is faster than the launcher: from the Pod's own namespaces.
			if output, code := started.exec(true, probeLine...); code != 0 {
				t.Fatalf("the probe exited with %d: %s", code, output)
			}
			shown := seen(t, started)
			if strings.Join(shown.Devices, " ") != "lo eth0" || shown.Hostname != "app" || !strings.HasPrefix(shown.Status["Uid"], "1000\t") ||
				shown.Status["CapBnd"] != strings.Repeat("0", 16) || shown.Status["NoNewPrivs"] != "1" || shown.Status["Seccomp_filters"] != "2" || len(shown.Queues) != 0 {
				t.Errorf("the check saw %+v", shown)
			}
			if state := stateOf(t, run, "app"); state.Status != health.Healthy || state.Last.ExitCode != 0 {
				t.Errorf("state %+v", state)
			}
		})
	}
}

func TestProbeWaitsForTheLauncher(t *testing.T) {
	t.Parallel()
	run := newPod(t, false, onePlan("app"))
	started := run.start(withCheck("app", "inspect", "/tmp/inspect"))
	until(t, "the launcher runs", func() bool {
		if started.isEnded() {
			t.Fatalf("the launcher exited: %s", started.problem)
		}
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", started.first))
		return err == nil && strings.TrimSpace(string(name)) == "guest"
	})
	done := make(chan struct{})
	output, code := "", 0
	go func() {
		defer close(done)
		output, code = started.exec(true, probeLine...)
	}()
	run.startNetwork()
	<-done
	if code != 0 {
		t.Fatalf("the probe exited with %d: %s", code, output)
	}
	if shown := seen(t, started); strings.Join(shown.Devices, " ") != "lo eth0" || shown.Hostname != "app" {
		t.Errorf("the check ran in %v of %s", shown.Devices, shown.Hostname)
	}
}

func TestProbeCountsFailures(t *testing.T) {
	t.Parallel()
	run := newPod(t, false, onePlan("app"))
	run.startNetwork()
	started := run.start(withCheck("app", "fail"))
	started.file("tmp/ready")
	for want := 1; want <= 2; want++ {
		if output, code := started.exec(false, probeLine...); code != 1 {
			t.Fatalf("the probe exited with %d: %s", code, output)
		}
	}
	state := stateOf(t, run, "app")
	if state.Status != health.Unhealthy || state.FailingStreak != 2 || state.Last.ExitCode != 3 || len(state.Last.Output) != health.MaxOutput {
		t.Errorf("state %+v", state)
	}
}

func TestProbeKillsACheckThatTimesOut(t *testing.T) {
	t.Parallel()
	run := newPod(t, false, onePlan("app"))
	run.startNetwork()
	about := withCheck("app", "orphan", "/tmp/orphan")
	about.Health.TimeoutMillis = 1500
	started := run.start(about)
	started.file("tmp/ready")
	if output, code := started.exec(false, probeLine...); code != 1 || !strings.Contains(output, "longer than") {
		t.Fatalf("the probe exited with %d: %s", code, output)
	}
	process := strings.TrimSpace(started.file("tmp/orphan"))
	until(t, "the check is gone", func() bool {
		_, code := started.exec(false, "/bin/testprogram", "alive", process)
		return code == 1
	})
}

func TestPreStopSignalsAndKillsTheRest(t *testing.T) {
	t.Parallel()
	run := newPod(t, false, onePlan("polite", "stubborn"))
	run.startNetwork()
	polite := document("polite", "trap", "/tmp/ready")
	polite.Stop = &containerspec.Stop{Signal: "SIGUSR1", TimeoutMillis: 60000}
	started := run.start(polite)
	started.file("tmp/ready")
	started.exec(false, "/guest/guest", "stop", "-spec", "/guest/spec.json")
	if code := started.wait(); code != 100+int(unix.SIGUSR1) {
		t.Errorf("exited with %d", code)
	}
	stubborn := document("stubborn", "parent", "/tmp/child")
	stubborn.Stop = &containerspec.Stop{Signal: "TERM", TimeoutMillis: 200}
	started = run.start(stubborn)
	child := strings.TrimSpace(started.file("tmp/child"))
	if output, code := started.exec(false, "/guest/guest", "stop", "-spec", "/guest/spec.json"); code != 0 {
		t.Fatalf("stop exited with %d: %s", code, output)
	}
	if _, code := started.exec(false, "/bin/testprogram", "alive", child); code != 1 {
		t.Error("a child outlived the stop timeout")
	}
}

func TestProbeIsNotBlockedByATracer(t *testing.T) {
	t.Parallel()
	run := newPod(t, false, onePlan("app"))
	run.startNetwork()
	about := withCheck("app", "orphan")
	about.Image.Command = []string{"holder", "/tmp/ready"}
	about.Health.TimeoutMillis = 1500
	started := run.start(about)
	started.file("tmp/ready")
	if output, code := started.exec(false, probeLine...); code != 1 || !strings.Contains(output, "longer than") {
		t.Fatalf("the probe exited with %d: %s", code, output)
	}
}
