package main

import (
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/containerspec"
	"cloister.dev/guest/internal/network/netplan"
)

// sight is what the test program shows of itself.
type sight struct {
	Pid                                  int
	Arguments, Files, Devices, Queues    []string
	Directory, Hostname, Hosts, Resolver string
	Mounts                               string
	Status, Variables                    map[string]string
	Limit                                uint64
	LowPort, Ignored                     bool
}

// onePlan returns a plan with one closed network with the given containers on it.
func onePlan(names ...string) netplan.Plan {
	spec := netplan.Plan{
		Networks: []netplan.Network{{Name: "inner", Egress: netplan.EgressClosed, Subnet: netip.MustParsePrefix("172.30.0.0/24")}},
		Inbound:  []uint16{shimPort},
	}
	for index, name := range names {
		spec.Namespaces = append(spec.Namespaces, netplan.Namespace{Name: name, Containers: []string{name},
			Attachments: []netplan.Attachment{{Network: "inner", Address: netip.AddrFrom4([4]byte{172, 30, 0, byte(10 + index)})}}})
	}
	return spec
}

func seen(t *testing.T, started *container) sight {
	t.Helper()
	var shown sight
	must(t, json.Unmarshal([]byte(started.file("tmp/inspect")), &shown))
	return shown
}

func TestLauncherGivesTheProgramItsIdentity(t *testing.T) {
	t.Parallel()
	run := newPod(t, false, onePlan("app"))
	run.startNetwork()
	about := document("app", "inspect", "/tmp/inspect")
	about.Image.User, about.User, about.Groups = "app", "", []int{2000}
	about.WorkingDir = "/work/deep"
	about.Tmpfs = map[string]string{"/data": "size=1m,mode=0700,uid=1234,gid=1235"}
	about.Limits = map[string]containerspec.Limit{"nofile": {Soft: 512, Hard: 1024}}
	started := run.start(about)
	if code := started.wait(); code != 0 {
		t.Fatalf("exited with %d: %s", code, started.problem)
	}
	shown := seenEnded(t, started)
	want := map[string]string{
		"Uid": "1234\t1234\t1234\t1234", "Gid": "1235\t1235\t1235\t1235", "Groups": "1300 2000",
		"CapInh": strings.Repeat("0", 16), "CapPrm": strings.Repeat("0", 16), "CapEff": strings.Repeat("0", 16),
		"CapBnd": strings.Repeat("0", 16), "CapAmb": strings.Repeat("0", 16),
		"NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "2", "SigBlk": strings.Repeat("0", 16), "SigIgn": ignoredHere(t),
	}
	for key, value := range want {
		if got := strings.TrimSpace(shown.Status[key]); got != value && !(key == "Groups" && strings.TrimPrefix(got, "0 ") == value) {
			t.Errorf("%s is %q, want %q", key, got, value)
		}
	}
	if shown.Pid != 1 || shown.Directory != "/work/deep" || shown.Hostname != "app" || shown.Limit != 1024 || !shown.LowPort {
		t.Errorf("pid %d, directory %s, host %s, limit %d, low port %t", shown.Pid, shown.Directory, shown.Hostname, shown.Limit, shown.LowPort)
	}
	if shown.Variables["HOME"] != "/home/app" || shown.Variables["GREETING"] != "hello" || shown.Variables["PATH"] == "" {
		t.Errorf("variables %v", shown.Variables)
	}
	if files := strings.Join(shown.Files, " "); files != "0 1 2" && files != "0 1 2 3" {
		t.Errorf("open files %q", files)
	}
	if devices := strings.Join(shown.Devices, " "); devices != "lo eth0" {
		t.Errorf("devices %q", devices)
	}
	if strings.Contains(shown.Hosts, podIP) || !strings.Contains(shown.Hosts, "172.30.0.10\tapp") || !strings.Contains(shown.Resolver, "169.254.20.53") {
		t.Errorf("hosts %q, resolver %q", shown.Hosts, shown.Resolver)
	}
	if !mountHas(shown.Mounts, "/data", "size=1024k", "mode=700", "uid=1234", "noexec", "nosuid", "nodev") {
		t.Errorf("tmpfs missing or wrong in %s", shown.Mounts)
	}
}

// seenEnded reads the output of a program that has exited.
func seenEnded(t *testing.T, started *container) sight {
	t.Helper()
	var shown sight
	must(t, json.Unmarshal(readFile(t, started.pod.root(started.name)+"/tmp/inspect"), &shown))
	return shown
}

func mountHas(mounts, place string, words ...string) bool {
	for _, line := range strings.Split(mounts, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 5 || fields[4] != place {
			continue
		}
		all := true
		for _, word := range words {
			all = all && strings.Contains(line, word)
		}
		if all {
			return true
		}
	}
	return false
}

// spec: 47.1
func TestLauncherKeepsOnlyTheNamedCapability(t *testing.T) {
	t.Parallel()
	run := newPod(t, false, onePlan("user", "root"))
	run.startNetwork()
	for name, user := range map[string]string{"user": "1000", "root": "0"} {
		about := document(name, "inspect", "/tmp/inspect")
		about.User, about.Capabilities, about.LowPorts = user, []string{"NET_BIND_SERVICE"}, false
		started := run.start(about, unix.CAP_NET_BIND_SERVICE)
		if code := started.wait(); code != 0 {
			t.Fatalf("%s exited with %d: %s", name, code, started.problem)
		}
		shown := seenEnded(t, started)
		for _, set := range []string{"CapPrm", "CapEff", "CapBnd"} {
			if shown.Status[set] != "0000000000000400" {
				t.Errorf("%s: %s is %s", name, set, shown.Status[set])
			}
		}
		if !shown.LowPort {
			t.Errorf("%s cannot listen on port 80", name)
		}
	}
}

func TestExitCodesAndStreamsAreTheProgramsOwn(t *testing.T) {
	t.Parallel()
	run := newPod(t, false, onePlan("seven", "absent", "closed", "empty"))
	run.startNetwork()
	seven := run.start(document("seven", "exit", "7"))
	if code := seven.wait(); code != 7 || seven.output.String() != "to stdout\n" || seven.problem.String() != "to stderr\n" {
		t.Errorf("exited with %d, wrote %q and %q", code, seven.output, seven.problem)
	}
	about := document("absent")
	about.Entrypoint = []string{"no-such-program"}
	if code := run.start(about).wait(); code != 127 {
		t.Errorf("an absent program exited with %d", code)
	}
	about = document("closed")
	about.Entrypoint = []string{"/etc/hosts"}
	if code := run.start(about).wait(); code != 126 {
		t.Errorf("a file that is not a program exited with %d", code)
	}
	about = document("empty")
	about.Image.Entrypoint = nil
	started := run.start(about)
	if code := started.wait(); code != 125 || !strings.Contains(started.problem.String(), "command or entrypoint") {
		t.Errorf("nothing to run exited with %d: %s", code, started.problem)
	}
}

func TestNothingRunsWithoutANetwork(t *testing.T) {
	t.Parallel()
	run := newPod(t, false, onePlan("alone"))
	about := document("alone", "write", "/tmp/ran", "yes")
	about.Network.DeadlineSeconds = 1
	started := run.start(about)
	if code := started.wait(); code != 125 || !strings.Contains(started.problem.String(), "network cannot be reached") {
		t.Errorf("exited with %d: %s", code, started.problem)
	}
	if exists(started.pod.root("alone") + "/tmp/ran") {
		t.Error("the program ran without its network")
	}
}

func TestSignalsReachTheProgram(t *testing.T) {
	t.Parallel()
	run := newPod(t, false, onePlan("app"))
	run.startNetwork()
	started := run.start(document("app", "trap", "/tmp/ready"))
	started.file("tmp/ready")
	must(t, unix.Kill(started.first, unix.SIGUSR1))
	if code := started.wait(); code != 100+int(unix.SIGUSR1) {
		t.Errorf("exited with %d: %s", code, started.problem)
	}
}

// ignoredHere returns the set of signals that are ignored in the test process: the launcher
// does not change it.
func ignoredHere(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(status), "\n") {
		if value, found := strings.CutPrefix(line, "SigIgn:"); found {
			return strings.TrimSpace(value)
		}
	}
	t.Fatal("the kernel does not show SigIgn")
	return ""
}

// The limit is of the user in the Pod's user namespace: a program at its limit takes
// nothing from another user's, and no capability inside lifts it.
func TestALimitOfProcessesStopsAForkBomb(t *testing.T) {
	t.Parallel()
	run := newPod(t, true, onePlan("bomb", "other"))
	run.startNetwork()
	bomb := document("bomb", "multiply", "400", "/tmp/result")
	bomb.User, bomb.Capabilities = "1000:1000", []string{"SYS_RESOURCE"}
	bomb.Limits = map[string]containerspec.Limit{"nproc": {Soft: 100, Hard: 100}}
	type result struct {
		Started int
		Refused string
	}
	read := func(started *container) (got result) {
		until(t, "the number of processes", func() bool {
			return json.Unmarshal([]byte(started.file("tmp/result")), &got) == nil
		})
		return got
	}
	got := read(run.start(bomb, unix.CAP_SYS_RESOURCE))
	if got.Started < 50 || got.Started >= 100 || !strings.Contains(got.Refused, "resource temporarily unavailable") {
		t.Errorf("%d processes were started with a limit of 100: %q", got.Started, got.Refused)
	}
	other := document("other", "multiply", "200", "/tmp/result")
	other.User = "1001:1001"
	if got := read(run.start(other)); got.Started != 200 {
		t.Errorf("another user's container could start only %d processes: %s", got.Started, got.Refused)
	}
}
