package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/containerspec"
	"cloister.dev/guest/internal/foundation/fdstore"
	"cloister.dev/guest/internal/supervisor/agent"
)

func TestAgentReportsBootStages(t *testing.T) {
	t.Parallel()
	p := newAgentPod(t, checkedContainer("web"),
		agent.Container{Name: "job", Image: "job@sha256:2", Restart: "no"})
	p.startAgent()
	if data, err := os.ReadFile(p.path("service", "config.yml")); err != nil || string(data) != configBytes {
		t.Errorf("the configuration file is not there byte for byte: %q, %v", data, err)
	}
	if got := p.state("web"); got.Created || got.Status != "" || !got.Declared || got.RestartCount != 0 {
		t.Errorf("before its start: %+v", got)
	}
	status, text := p.get("/v1/anything")
	if status != http.StatusServiceUnavailable || !strings.Contains(text, `"status":"pending"`) || !strings.Contains(text, `"boot":{"stages":[{"name":"config","status":"ok"`) {
		t.Errorf("while it boots: %d %s", status, text)
	}
	check := healthCheck("/bin/testprogram", "present", "/tmp/well")
	check.StartPeriodMillis = 600_000
	web := p.start(reporting("web", check, "pause"))
	until(t, "web runs", func() bool { return p.state("web").Status == "running" })
	if p.probe("/ready") != http.StatusServiceUnavailable || p.probe("/health/web") != http.StatusServiceUnavailable {
		t.Error("ready before web is healthy")
	}
	for path, want := range map[string]int{"/health/job": http.StatusNotFound, "/stage/other": http.StatusNotFound,
		"/stage/config": http.StatusNotFound, "/stage/shim": http.StatusServiceUnavailable, "/stage/shim?wait=x": http.StatusServiceUnavailable} {
		if got := p.probe(path); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	if got := p.stage("containers", "web", "start"); got.Status != "ok" || got.DurationNS <= 0 {
		t.Errorf("start of web: %+v", got)
	}
	if got := p.stage("containers", "web", "healthy"); got.Status != "pending" {
		t.Errorf("health of web: %+v", got)
	}
	must(t, writeFile(web.pod.root("web")+"/tmp/well", "yes"))
	if health := p.health("web", "healthy", isHealthy); health.FailingStreak != 0 || health.LastCheckStart == nil || health.LastCheckEnd == nil || *health.LastCheckExitCode != 0 || p.probe("/health/web") != http.StatusOK {
		t.Errorf("health: %+v", health)
	}
	p.start(reporting("job", nil, "exit", "0"))
	until(t, "job has exited", func() bool { return p.state("job").Status == "exited" })
	if got := p.state("job"); got.ExitCode != -1 || got.StartedAt == nil || got.FinishedAt == nil || got.FinishedAt.Before(*got.StartedAt) {
		t.Errorf("job: %+v", got)
	}
	if _, err := os.Stat(p.path("agent", "booted")); err == nil {
		t.Error("booted before the certificate and the shim are there")
	}
	must(t, os.WriteFile(p.path("certificate"), nil, 0o644))
	p.openShim(shimNames[0])
	until(t, "the shim is asked for a name without a certificate", func() bool { return exists(p.path("refused")) })
	if exists(p.path("agent", "booted")) {
		t.Error("booted before the shim has a certificate for each name")
	}
	p.certify(shimNames...)
	until(t, "the enclave is ready", func() bool { return p.probe("/ready") == http.StatusOK })
	until(t, "the shim may pass requests", func() bool { return exists(p.path("agent", "booted")) })
	_, text = p.get("/.well-known/cloister-boot-stages")
	stages := decode[agent.Stages](t, text)
	names := []string{}
	for _, one := range stages.Stages {
		names = append(names, one.Name+" "+one.Status)
	}
	want := "config ok,network skipped,identity skipped,cpu-attestation skipped,gpu-attestation skipped,certificate ok," +
		"secrets ok,registry-auth skipped,firewall skipped,models skipped,containers ok,shim ok"
	if got := strings.Join(names, ","); got != want || stages.CompletedAt == nil {
		t.Errorf("stages: %s", text)
	}
}

func TestAgentRestartAdoptsProcesses(t *testing.T) {
	t.Parallel()
	p := newAgentPod(t, agent.Container{Name: "web", Image: "web@sha256:1", Restart: "always"},
		agent.Container{Name: "side", Image: "side@sha256:1", Restart: "on-failure"})
	fdStore := p.startFDStore()
	must(t, os.Chmod(p.plan.FDStoreSocket, 0o666))
	p.about.FDStoreSocket = p.plan.FDStoreSocket
	p.startAgent()
	web, side := p.start(reporting("web", nil, "pause")), p.start(reporting("side", nil, "pause"))
	p.completeBoot()
	_, before := p.get("/.well-known/cloister-boot-stages")
	was := p.state("web")
	p.killAgent()
	side.kill()
	p.startAgent()
	until(t, "the exit of side is reported", func() bool { return p.state("side").Status == "exited" })
	if got := p.state("side"); got.FinishedAt != nil || got.ExitCode != -1 {
		t.Errorf("the exit time and code of side are not known: %+v", got)
	}
	if got := p.state("web"); got.Status != "running" || got.RestartCount != 0 || !got.StartedAt.Equal(*was.StartedAt) {
		t.Errorf("web after the agent: %+v, before: %+v", got, was)
	}
	if _, after := p.get("/.well-known/cloister-boot-stages"); after != before {
		t.Errorf("the boot started again: %s instead of %s", after, before)
	}
	web.kill()
	until(t, "web is to be restarted", func() bool { return p.state("web").Status == "restarting" })
	p.start(reporting("web", nil, "pause"))
	until(t, "web runs again", func() bool { got := p.state("web"); return got.Status == "running" && got.RestartCount == 1 })

	// A restarted fd store receives everything again, before the agent may need it.
	p.killFDStore(fdStore)
	must(t, os.Remove(p.plan.FDStoreSocket))
	fdStore = p.startFDStore()
	must(t, os.Chmod(p.plan.FDStoreSocket, 0o666))
	until(t, "the restarted fd store has web", func() bool {
		files, err := fdstore.Fetch(p.plan.FDStoreSocket, fdstore.Containers+"web/")
		for _, file := range files {
			file.Close()
		}
		return err == nil && len(files) > 0
	})

	// Without the fd store's content the agent claims nothing about what may run.
	p.killFDStore(fdStore)
	p.killAgent()
	p.startAgent()
	if got := p.state("web"); got.Status != "" || got.RestartCount != 1 {
		t.Errorf("web, whose state is unknown: %+v", got)
	}
}

// The kubelet terminates all containers of a Pod at the same time: what the containers of the file
// need ends after them.
func TestAgentAndNetworkOutliveTheContainers(t *testing.T) {
	t.Parallel()
	p := newAgentPodWith(t, true, onePlan("web"), agent.Container{Name: "web", Image: "web@sha256:1", Restart: "always"})
	p.startFDStore()
	must(t, os.Chmod(p.plan.FDStoreSocket, 0o666))
	p.about.FDStoreSocket = p.plan.FDStoreSocket
	p.startNetwork()
	p.startAgent()
	about := document("web", "pause")
	about.Agent = &containerspec.AgentReporting{Socket: "/report/report.sock", DeadlineSeconds: 60}
	web := p.start(about)
	until(t, "the fd store has the process", func() bool {
		files, err := fdstore.Fetch(p.plan.FDStoreSocket, fdstore.Containers)
		for _, file := range files {
			file.Close()
		}
		return err == nil && files["web/process"] != nil
	})
	network := p.network.Process.Pid
	must(t, p.process.Process.Signal(unix.SIGTERM))
	must(t, p.network.Process.Signal(unix.SIGTERM))
	if status, _ := p.get("/.well-known/cloister-containers"); status != http.StatusOK || ended(p.ended) {
		t.Errorf("the agent ended before the container: %d", status)
	}
	if got := ask(t, web, "udp", "web", "A"); got.Code != "NOERROR" {
		t.Errorf("no name is resolved for a container that still runs: %+v", got)
	}
	web.kill()
	until(t, "agent and network have ended", func() bool {
		return ended(p.ended) && unix.Kill(network, 0) != nil
	})
	if code := p.process.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the agent exited with %d: %s", code, p.log)
	}
}

func TestUnhealthyContainerFailsTheBoot(t *testing.T) {
	t.Parallel()
	p := newAgentPod(t, checkedContainer("web"))
	p.startAgent()
	p.start(reporting("web", healthCheck("/bin/testprogram", "fail"), "pause"))
	until(t, "the checks have failed", func() bool { return exists(p.path("termination")) && ended(p.ended) })
	if code := p.process.ProcessState.ExitCode(); code != 1 {
		t.Errorf("the agent exited with %d: %s", code, p.log)
	}
	text, err := os.ReadFile(p.path("termination"))
	must(t, err)
	want := "HealthcheckFailed: Container web is unhealthy: its health check failed 2 times in a row. Its last output: 0123456789"
	if !strings.HasPrefix(string(text), want) {
		t.Errorf("the termination message is %q", text)
	}
	p.startAgent()
	if got := p.stage("containers", "web", "healthy"); got.Status != "failed" || !strings.HasSuffix(got.Detail, "failed 2 times in a row.") {
		t.Errorf("the stage: %+v", got)
	}
	status, body := p.get("/")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, `"status":"failed"`) {
		t.Errorf("%d %s", status, body)
	}
	if ended(p.ended) {
		t.Error("the second agent exited too")
	}
}

func TestAgentReportsTheReasonOfAFailedLaunch(t *testing.T) {
	t.Parallel()
	p := newAgentPod(t, agent.Container{Name: "web", Image: "web@sha256:1", Restart: "no"})
	p.runAgent()
	about := reporting("web", nil)
	about.Entrypoint = []string{"/not/there"}
	if code := p.start(about).wait(); code != 127 {
		t.Errorf("the launcher exited with %d", code)
	}
	until(t, "the agent exits", func() bool { return ended(p.ended) })
	got := p.state("web")
	if got.ExitCode != 127 || !strings.Contains(got.Error, "/not/there") || got.Status != "exited" {
		t.Errorf("web: %+v", got)
	}
	text, err := os.ReadFile(p.path("termination"))
	must(t, err)
	if !strings.HasPrefix(string(text), `BootFailed: Container web could not be started: "/not/there": not found`) {
		t.Errorf("the termination message is %q", text)
	}
}

func TestChangedConfigurationFileFailsTheBoot(t *testing.T) {
	t.Parallel()
	p := newAgentPod(t, agent.Container{Name: "web", Image: "web@sha256:1", Restart: "no"})
	must(t, os.WriteFile(p.path("config.yml"), []byte("containers: [other]\n"), 0o644))
	p.runAgent()
	until(t, "the agent exits", func() bool { return ended(p.ended) })
	text, err := os.ReadFile(p.path("termination"))
	must(t, err)
	if !strings.HasPrefix(string(text), "MeasurementMismatch: Stage config: not what was measured: the configuration file has the digest") || exists(p.path("service", "config.yml")) {
		t.Errorf("the termination message is %q", text)
	}
}

func TestNothingStartsWithoutTheAgent(t *testing.T) {
	t.Parallel()
	p := newAgentPod(t, agent.Container{Name: "web", Image: "web@sha256:1", Restart: "no"})
	about := reporting("web", nil, "write", "/tmp/ran", "yes")
	about.Agent.DeadlineSeconds = 1
	web := p.start(about)
	if code := web.wait(); code != 125 || !strings.Contains(web.problem.String(), "the enclave's agent cannot be reached") {
		t.Errorf("%d: %s", code, web.problem)
	}
	if exists(filepath.Join(p.root("web"), "tmp/ran")) {
		t.Error("the program ran")
	}
}

func TestATenantReportsItselfOnly(t *testing.T) {
	t.Parallel()
	p := newAgentPod(t, checkedContainer("web"),
		checkedContainer("root"),
		agent.Container{Name: "idle", Image: "idle@sha256:1", Restart: "always"})
	p.startAgent()
	web := p.start(reporting("web", nil, "pause"))
	root := reporting("root", nil, "pause")
	root.User = "0:0"
	hostile := p.start(root)
	until(t, "both run", func() bool { return p.state("web").Status == "running" && p.state("root").Status == "running" })

	for _, one := range []struct {
		who   *container
		user  string
		claim []string
		want  string
	}{
		{web, "1000", []string{"health", "/report/report.sock", "process", "pid:1"}, "refused only the checker that the container's launcher started"},
		{web, "1000", []string{"launch", "/report/report.sock", "process", "pid:1"}, "refused only the container's launcher"},
		{hostile, "0", []string{"launch", "/report/report.sock", "process", "pid:1"}, "refused the container is already running"},
		{hostile, "0", []string{"health", "/report/report.sock", "process", "/etc/hosts"}, "refused the descriptor named process is not a process"},
		{hostile, "0", []string{"health", "/report/report.sock", "process", "pid:1", "cpu", "/etc/hosts"}, "refused file \"cpu\" is not a counter"},
		{hostile, "0", []string{"health", "/report/report.sock", "process", "pid:1", "key", "/etc/hosts"}, "refused file \"key\" is not known"},
		{hostile, "0", []string{"health", "/report/report.sock"}, "refused no process was sent"},
		{hostile, "0", []string{"failed", "/report/report.sock", "process", "pid:1"}, "refused \"failed\" cannot be the first message"},
		{hostile, "0", []string{"health", "/report/report.sock", "process", "pid:1"}, "refused only the checker that the container's launcher started"},
	} {
		output := one.who.as(one.user, append([]string{"/bin/testprogram", "claim"}, one.claim...)...)
		if !strings.HasPrefix(output, one.want) {
			t.Errorf("%s as %s: %v: got %q, want %q", one.who.name, one.user, one.claim, output, one.want)
		}
	}
	for _, name := range []string{"web", "root", "idle"} {
		if got := p.state(name); got.RestartCount != 0 || (got.Health != nil && got.Health.Status != "starting") {
			t.Errorf("%s was touched: %+v", name, got)
		}
	}
	if got := p.state("root"); got.ContainerID != "" {
		t.Errorf("a forged id was accepted: %+v", got)
	}
}

// spec: 28.6
func TestMetrics(t *testing.T) {
	t.Parallel()
	p := newAgentPod(t, agent.Container{Name: "web", Image: "web@sha256:1", Restart: "always"})
	must(t, os.WriteFile(p.path("token"), []byte("a-made-up-token\n"), 0o644))
	p.about.Metrics.TokenFile = p.path("token")
	p.binds["web"]["/sys/fs/cgroup"] = p.path("groups")
	enter := makeGroup(t, p.path("groups"))
	p.startAgent()
	web := p.start(reporting("web", nil, "busy"))
	enter(web.first)
	for _, headers := range [][]string{{}, {"Authorization", "Bearer wrong"}, {"Authorization", "Basic a-made-up-token"}} {
		if status, text := p.get("/.well-known/cloister-metrics", headers...); status != http.StatusUnauthorized {
			t.Errorf("%v: %d %s", headers, status, text)
		}
	}
	pass := []string{"Authorization", "Bearer a-made-up-token"}
	var seen agent.MetricsDocument
	until(t, "CPU use is measured", func() bool {
		status, text := p.get("/.well-known/cloister-metrics", pass...)
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
		seen = decode[agent.MetricsDocument](t, text)
		return seen.CPUUtil != nil && *seen.CPUUtil > 0 && seen.CPUMemUtil != nil
	})
	if seen.ID != "3f0c" || seen.Domain != "web.example.org" || seen.Image != "acme/web@v1.2.3" || seen.CPUMemTotal != 8 || *seen.CPUUtil > 110 {
		t.Errorf("%+v", seen)
	}
	_, text := p.get("/.well-known/metrics", pass...)
	want := fmt.Sprintf(`cloister_enclave_cpu_mem_total{id="3f0c",domain="web.example.org",image="acme/web@v1.2.3"} 8%s`, "\n")
	if !strings.Contains(text, want) || !strings.Contains(text, "# TYPE cloister_enclave_cpu_util gauge\n") {
		t.Errorf("gauges: %s", text)
	}
}
