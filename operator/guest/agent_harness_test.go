package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/containerspec"
	"cloister.dev/guest/internal/foundation/unmeasured"
	"cloister.dev/guest/internal/network/netplan"
	"cloister.dev/guest/internal/supervisor/agent"
)

const (
	agentUID    = 65003
	configBytes = "# the measured file\ncontainers: []\n"
)

var shimNames = []string{"web.example.org", "www.example.com"}

// agentPod is a Pod with an agent, without its own network.
type agentPod struct {
	*pod
	about   agent.Spec
	process *exec.Cmd
	ended   chan struct{}
}

// newAgentPod prepares a Pod whose containers report to an agent; the shim
// accepts connections once openShim has been called.
func newAgentPod(t *testing.T, containers ...agent.Container) *agentPod {
	t.Helper()
	return newAgentPodWith(t, true, netplan.Plan{}, containers...)
}

// newAgentPodWith is newAgentPod with a network of the enclave's own, or without a user namespace.
func newAgentPodWith(t *testing.T, users bool, plan netplan.Plan, containers ...agent.Container) *agentPod {
	t.Helper()
	made := &agentPod{pod: newPod(t, users, plan)}
	for _, name := range []string{"reports", "agent", "service"} {
		must(t, os.Mkdir(made.path(name), 0o777))
		must(t, os.Chmod(made.path(name), 0o777))
	}
	must(t, os.WriteFile(made.path("termination"), nil, 0o666))
	must(t, os.Chmod(made.path("termination"), 0o666))
	must(t, os.WriteFile(made.path("config.yml"), []byte(configBytes), 0o644))
	if users {
		must(t, os.Chown(made.directory, userBase, userBase))
	}
	stages := map[string]agent.Rule{}
	for _, name := range []string{"network", "identity", "cpu-attestation", "gpu-attestation", "registry-auth", "firewall", "models"} {
		stages[name] = agent.Rule{Skipped: "not in this test"}
	}
	stages["certificate"] = agent.Rule{File: made.path("certificate")}
	stages["secrets"] = agent.Rule{Launched: []string{containers[0].Name}}
	made.about = agent.Spec{
		Version: agent.Version, SocketDirectory: made.path("reports"), Directory: made.path("agent"),
		ServiceDirectory: made.path("service"), Stages: stages, Containers: containers, TerminationFile: made.path("termination"),
		Config:  made.path("config.yml"),
		Metrics: agent.Metrics{CPUs: 2, MemoryBytes: 8 << 30},
		Shim:    netip.MustParseAddrPort("127.0.0.1:8443"), Probes: netip.MustParseAddrPort("0.0.0.0:8441"),
	}
	made.unmeasured.Hostnames = shimNames
	made.unmeasured.Labels = unmeasured.Labels{ID: "3f0c", Image: "acme/web@v1.2.3", CPUType: "none"}
	made.writeUnmeasured()
	made.binds = map[string]map[string]string{}
	for _, one := range containers {
		must(t, os.Mkdir(made.path("reports", one.Name), 0o777))
		must(t, os.Chmod(made.path("reports", one.Name), 0o777))
		made.binds[one.Name] = map[string]string{"/report": made.path("reports", one.Name)}
	}
	return made
}

// startAgent starts the agent as the Pod does, and waits until it is up.
func (p *agentPod) startAgent() {
	p.t.Helper()
	p.runAgent()
	until(p.t, "the agent is up", func() bool {
		select {
		case <-p.ended:
			p.t.Fatalf("the agent exited: %s", p.log)
		default:
		}
		return p.probe("/") == http.StatusNotFound
	})
}

func (p *agentPod) runAgent() {
	p.t.Helper()
	p.measure("agent.json", p.about)
	user := strconv.Itoa(agentUID)
	p.process = p.sidecar("setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--bounding-set", "-all", "--inh-caps", "-all",
		filepath.Join(tools, "guest"), "agent", "-spec", p.path("agent.json"))
	p.log = &bytes.Buffer{}
	p.process.Stderr = p.log
	must(p.t, p.process.Start())
	command, ended := p.process, make(chan struct{})
	p.ended = ended
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	p.t.Cleanup(func() {
		_ = command.Process.Kill()
		<-ended
	})
}

// probe sends a probe as the kubelet does, and returns the status; 0 if nothing responds.
func (p *agentPod) probe(path string) int {
	output, err := p.enter(filepath.Join(tools, "testprogram"), "status", "http://127.0.0.1:8441"+path).Output()
	if err != nil {
		return 0
	}
	status, err := strconv.Atoi(strings.TrimSpace(string(output)))
	must(p.t, err)
	return status
}

// killAgent kills the agent, as a crash would.
func (p *agentPod) killAgent() {
	must(p.t, p.process.Process.Kill())
	<-p.ended
}

// openShim starts what listens as the shim does, in the Pod's network. It has certificates for
// the names in the file certified, and writes to the file refused which other name was asked for.
func (p *agentPod) openShim(names ...string) {
	p.t.Helper()
	p.certify(names...)
	shim := p.enter(filepath.Join(tools, "testprogram"), "shim", "8443", p.path("certified"), p.path("refused"))
	shim.Stderr = os.Stderr
	must(p.t, shim.Start())
	p.t.Cleanup(func() {
		_ = shim.Process.Kill()
		_ = shim.Wait()
	})
}

// certify gives the shim certificates only for these names.
func (p *agentPod) certify(names ...string) {
	p.t.Helper()
	must(p.t, os.WriteFile(p.path("certified.new"), []byte(strings.Join(names, "\n")), 0o644))
	must(p.t, os.Rename(p.path("certified.new"), p.path("certified")))
}

// reporting returns the spec of a container whose launcher and checker report to the agent.
func reporting(name string, check *containerspec.HealthCheck, arguments ...string) containerspec.Spec {
	about := document(name, arguments...)
	about.Network, about.LowPorts, about.IPC = nil, false, containerspec.IPCShared
	about.GuestPaths = []string{"/guest", "/report"}
	about.Agent = &containerspec.AgentReporting{Socket: "/report/report.sock", DeadlineSeconds: 60}
	about.Health = check
	return about
}

func healthCheck(words ...string) *containerspec.HealthCheck {
	return &containerspec.HealthCheck{Test: append([]string{"CMD"}, words...), IntervalMillis: 20, TimeoutMillis: 20_000, Retries: 2}
}

// get sends the agent a request as the shim does.
func (p *agentPod) get(path string, headers ...string) (int, string) {
	p.t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", p.path("agent", "agent.sock"))
		}}}
	request, err := http.NewRequest(http.MethodGet, "http://web.example.org"+path, nil)
	must(p.t, err)
	for index := 0; index+1 < len(headers); index += 2 {
		request.Header.Set(headers[index], headers[index+1])
	}
	response, err := client.Do(request)
	must(p.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(p.t, err)
	return response.StatusCode, string(text)
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var value T
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return value
}

// state reads one container of container-status.json.
func (p *agentPod) state(name string) agent.ContainerState {
	p.t.Helper()
	data, err := os.ReadFile(p.path("service", "container-status.json"))
	must(p.t, err)
	for _, one := range decode[agent.ContainerStatus](p.t, string(data)).Containers {
		if one.Name == name {
			return one
		}
	}
	p.t.Fatalf("%s is not in %s", name, data)
	return agent.ContainerState{}
}

// stage finds a stage by its path of names.
func (p *agentPod) stage(names ...string) agent.Stage {
	p.t.Helper()
	_, text := p.get("/.well-known/cloister-boot-stages")
	stages := decode[agent.Stages](p.t, text).Stages
	for depth, name := range names {
		found := false
		for _, one := range stages {
			if one.Name == name {
				if depth == len(names)-1 {
					return one
				}
				stages, found = one.Stages, true
				break
			}
		}
		if !found {
			break
		}
	}
	p.t.Fatalf("no stage %v in %s", names, text)
	return agent.Stage{}
}

// health waits until the health of a container is as expected, and returns it.
func (p *agentPod) health(name string, what string, expected func(agent.HealthState) bool) agent.HealthState {
	p.t.Helper()
	var got agent.HealthState
	until(p.t, name+" is "+what, func() bool {
		state := p.state(name)
		if state.Health != nil {
			got = *state.Health
		}
		return state.Health != nil && expected(got)
	})
	return got
}

// completeBoot lets the boot complete, once all containers are as expected.
func (p *agentPod) completeBoot() {
	p.t.Helper()
	must(p.t, os.WriteFile(p.path("certificate"), nil, 0o644))
	p.openShim(shimNames...)
	if status := p.probe("/ready?wait=60"); status != http.StatusOK {
		p.t.Fatalf("the enclave is not ready: %d", status)
	}
}

func isHealthy(state agent.HealthState) bool   { return state.Status == "healthy" }
func isUnhealthy(state agent.HealthState) bool { return state.Status == "unhealthy" }

// checkedContainer returns an entry of a container with a health check.
func checkedContainer(name string) agent.Container {
	return agent.Container{Name: name, Image: name + "@sha256:1", Restart: "always", HealthWithinMillis: 600_000, CheckEveryMillis: 600_000}
}

// makeGroup creates cgroups for a container, mounts them as a runtime does, and
// returns a function that moves a process into them.
func makeGroup(t *testing.T, directory string) func(process int) {
	t.Helper()
	name := fmt.Sprintf("guest-test-%d-%d", os.Getpid(), time.Now().UnixNano())
	groups := []string{}
	must(t, os.Mkdir(directory, 0o755))
	if exists("/sys/fs/cgroup/cgroup.controllers") {
		groups = append(groups, filepath.Join("/sys/fs/cgroup", name))
	} else {
		for _, kind := range []string{"cpuacct", "memory"} {
			groups = append(groups, filepath.Join("/sys/fs/cgroup", kind, name))
			must(t, os.Mkdir(filepath.Join(directory, kind), 0o755))
		}
	}
	for _, group := range groups {
		if err := os.Mkdir(group, 0o755); err != nil {
			t.Skipf("needs cgroups that can be created: %v", err)
		}
		t.Cleanup(func() { until(t, group+" is empty", func() bool { return os.Remove(group) == nil }) })
		target := directory
		if len(groups) > 1 {
			target = filepath.Join(directory, filepath.Base(filepath.Dir(group)))
		}
		must(t, unix.Mount(group, target, "", unix.MS_BIND, ""))
		t.Cleanup(func() { must(t, unix.Unmount(target, unix.MNT_DETACH)) })
	}
	return func(process int) {
		for _, group := range groups {
			must(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(process)), 0o644))
		}
	}
}

// as runs a command in the container as a user without capabilities, as its programs run.
func (c *container) as(user string, arguments ...string) string {
	c.pod.t.Helper()
	id, err := strconv.Atoi(user)
	must(c.pod.t, err)
	line := []string{"-t", strconv.Itoa(c.first), "-m", "-p", "-r", "-w", "-U", "-S", strconv.Itoa(id), "-G", strconv.Itoa(id), "--"}
	output, err := exec.Command("nsenter", append(line, arguments...)...).CombinedOutput()
	if err != nil {
		c.pod.t.Fatalf("%v in %s: %v: %s", arguments, c.name, err, output)
	}
	return string(output)
}

func ended(done chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
