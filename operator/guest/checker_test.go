package main

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/containerspec"
	"cloister.dev/guest/internal/supervisor/agent"
)

// checking returns the spec of a container on a network of its own whose check is a test program.
func checking(name string, test []string, arguments ...string) containerspec.Spec {
	about := document(name, arguments...)
	about.Agent = &containerspec.AgentReporting{Socket: "/report/report.sock", DeadlineSeconds: 60}
	about.Health = healthCheck(append([]string{"/bin/testprogram"}, test...)...)
	return about
}

func TestTheCheckRunsAsTheContainer(t *testing.T) {
	t.Parallel()
	for name, users := range map[string]bool{"host users": false, "user namespace": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newAgentPodWith(t, users, onePlan("app"), checkedContainer("app"))
			p.startNetwork()
			p.startAgent()
			about := checking("app", []string{"inspect", "/tmp/inspect"}, "pause")
			about.Limits = map[string]containerspec.Limit{"nofile": {Soft: 512, Hard: 1024}}
			started := p.start(about)
			p.health("app", "healthy", isHealthy)
			shown := seen(t, started)
			if strings.Join(shown.Devices, " ") != "lo eth0" || shown.Hostname != "app" || !strings.HasPrefix(shown.Status["Uid"], "1000\t") ||
				shown.Status["CapBnd"] != strings.Repeat("0", 16) || shown.Status["NoNewPrivs"] != "1" || shown.Status["Seccomp_filters"] != "2" ||
				len(shown.Queues) != 0 || shown.Limit != 1024 || shown.Variables["GREETING"] != "hello" {
				t.Errorf("the check saw %+v", shown)
			}
			if files := strings.Join(shown.Files, " "); files != "0 1 2" && files != "0 1 2 3" {
				t.Errorf("open files of the check: %q", files)
			}
		})
	}
}

func TestTheCheckerCountsFailures(t *testing.T) {
	t.Parallel()
	p := newAgentPod(t, checkedContainer("app"))
	p.startAgent()
	started := p.start(reporting("app", healthCheck("/bin/testprogram", "present", "/tmp/well"), "pause"))
	must(t, writeFile(started.pod.root("app")+"/tmp/well", "yes"))
	p.completeBoot()
	must(t, os.Remove(started.pod.root("app")+"/tmp/well"))
	got := p.health("app", "unhealthy", isUnhealthy)
	if got.FailingStreak < 2 || *got.LastCheckExitCode != 65 || p.probe("/health/app") != http.StatusServiceUnavailable {
		t.Errorf("%+v", got)
	}
	must(t, writeFile(started.pod.root("app")+"/tmp/well", "yes"))
	p.health("app", "healthy again", isHealthy)
}

func TestACheckThatTimesOutIsKilled(t *testing.T) {
	t.Parallel()
	p := newAgentPod(t, checkedContainer("app"))
	p.startAgent()
	about := reporting("app", healthCheck("/bin/testprogram", "orphan", "/tmp/orphan"), "pause")
	about.Health.TimeoutMillis, about.Health.IntervalMillis, about.Health.Retries = 5000, 600_000, 1
	started := p.start(about)
	process := strings.TrimSpace(started.file("tmp/orphan"))
	p.health("app", "timed out", func(got agent.HealthState) bool { return got.LastCheckExitCode != nil && *got.LastCheckExitCode == -1 })
	until(t, "the check is gone", func() bool {
		_, code := started.exec(false, "/bin/testprogram", "alive", process)
		return code == 1
	})
}

func TestTheCheckerIsNotBlockedByATracer(t *testing.T) {
	t.Parallel()
	p := newAgentPod(t, checkedContainer("app"))
	p.startAgent()
	about := reporting("app", healthCheck("/bin/testprogram", "orphan"), "holder", "/tmp/ready")
	about.Health.TimeoutMillis = 1500
	p.start(about).file("tmp/ready")
	p.health("app", "timed out", func(got agent.HealthState) bool { return got.LastCheckExitCode != nil && *got.LastCheckExitCode == -1 })
}

// A program can kill the checker, which has its user; it can neither trace nor read it, so all that
// it can do is to become unhealthy.
func TestAProgramCanOnlyBecomeUnhealthy(t *testing.T) {
	t.Parallel()
	for name, user := range map[string]string{"user": "1000", "root": "0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checked := checkedContainer("app")
			checked.CheckEveryMillis = 10_000
			p := newAgentPod(t, checked)
			p.startAgent()
			about := reporting("app", healthCheck("/bin/testprogram", "present", "/tmp"), "steal", "/tmp/begin", "/tmp/result")
			about.User, about.Health.IntervalMillis = user+":"+user, 500
			started := p.start(about)
			p.completeBoot()
			must(t, writeFile(p.root("app")+"/tmp/begin", "yes"))
			if got := started.file("tmp/result"); got != "1 0" {
				t.Errorf("checkers found and stolen: %s", got)
			}
			p.health("app", "unhealthy", isUnhealthy)
			if p.probe("/health/app") != http.StatusServiceUnavailable || started.isEnded() {
				t.Error("the container is healthy without its checker, or has ended")
			}
		})
	}
}

func TestTheCheckerReportsToTheNextAgent(t *testing.T) {
	t.Parallel()
	p := newAgentPod(t, checkedContainer("app"))
	p.startAgent()
	started := p.start(reporting("app", healthCheck("/bin/testprogram", "present", "/tmp/well"), "pause"))
	must(t, writeFile(started.pod.root("app")+"/tmp/well", "yes"))
	p.completeBoot() // an unhealthy container would fail it
	p.killAgent()
	must(t, os.Remove(started.pod.root("app")+"/tmp/well"))
	p.startAgent()
	p.health("app", "unhealthy", isUnhealthy)
	if got := p.state("app"); got.Status != "running" || got.RestartCount != 0 {
		t.Errorf("the next agent did not learn of the process from its checker: %+v", got)
	}
}

// A guest that the container's user may not execute is one way in which the checker cannot start.
func TestNothingRunsWithoutItsChecker(t *testing.T) {
	t.Parallel()
	p := newAgentPod(t, checkedContainer("app"))
	p.startAgent()
	p.prepare(reporting("app", healthCheck("/bin/testprogram", "present", "/tmp"), "write", "/tmp/ran", "yes"))
	guest := p.path("containers", "app", "guest", "guest")
	must(t, os.Remove(guest))
	must(t, os.WriteFile(guest, readFile(t, tools+"/guest"), 0o700))
	must(t, os.Chown(guest, userBase, userBase))
	started := p.launch("app", []string{"/guest/guest", "exec", "-spec", "/guest/spec.json"})
	if code := started.wait(); code != 125 || !strings.Contains(started.problem.String(), "the health check cannot be started") {
		t.Errorf("exited with %d: %s", code, started.problem)
	}
	if exists(p.root("app") + "/tmp/ran") {
		t.Error("the program ran")
	}
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
	until(t, "the child, which was killed, is dead", func() bool {
		_, code := started.exec(false, "/bin/testprogram", "alive", child)
		return code == 1
	})
}
