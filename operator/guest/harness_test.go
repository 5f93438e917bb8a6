package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/containerspec"
	"cloister.dev/guest/internal/foundation/entrypoint"
	"cloister.dev/guest/internal/foundation/measured"
	"cloister.dev/guest/internal/foundation/unmeasured"
	"cloister.dev/guest/internal/network/netplan"
	"cloister.dev/guest/internal/network/network"
)

// Capabilities that the containers of a Pod start with.
var (
	launchCapabilities  = []uint{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_SETUID, unix.CAP_SETGID}
	networkCapabilities = []uint{unix.CAP_NET_ADMIN}
)

const (
	patience = 180 * time.Second
	podIP    = "10.244.0.5"
	shimUID  = 4001
	shimPort = 9000
	otherTCP = 9001
	appPort  = 8080
	userBase = 200000
	upstream = "10.96.0.10"
	// guestRoot is the guest's directory in these tests: each process has a mount of its own there,
	// also those that see the files of the machine that tests.
	guestRoot = "/mnt"
)

// tools is the directory of the two binaries, the guest and the test program.
var tools string

func TestMain(m *testing.M) {
	code := func() int {
		directory, err := os.MkdirTemp("", "guest-tools-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(directory)
		if err := os.Chmod(directory, 0o755); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		tools = directory
		for name, source := range map[string]string{"guest": ".", "testprogram": "./testprogram"} {
			build := exec.Command("go", "build", "-trimpath", "-ldflags=-X cloister.dev/guest/internal/foundation/measured.root="+guestRoot, "-o", filepath.Join(directory, name), source)
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
			if output, err := build.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n%s", name, err, output)
				return 1
			}
		}
		return m.Run()
	}()
	os.Exit(code)
}

// pod is one Pod with its own emulated internet.
type pod struct {
	t         *testing.T
	directory string
	users     bool
	holder    int
	world     int
	plan      netplan.Plan
	network   *exec.Cmd
	// networkEnded is closed when network has exited.
	networkEnded chan struct{}
	log          *bytes.Buffer
	// binds are further read-only mounts: container -> path inside -> source.
	binds map[string]map[string]string
	// digests are those of the documents of our sidecars, by name.
	digests map[string]string
	// unmeasured is what no measurement names.
	unmeasured unmeasured.Document
}

// needNamespaces skips the test where real namespaces cannot be created.
func needNamespaces(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: namespaces, bridges and packet filters are real here")
	}
	if _, err := exec.LookPath("nsenter"); err != nil {
		t.Skip("needs nsenter of util-linux")
	}
}

// newPod creates a Pod's network namespace, in a user namespace if users is set,
// with an uplink to an emulated internet.
func newPod(t *testing.T, users bool, spec netplan.Plan) *pod {
	t.Helper()
	needNamespaces(t)
	made := &pod{t: t, users: users, directory: openTempDir(t), digests: map[string]string{}, unmeasured: unmeasured.Document{Version: unmeasured.Version}}
	made.world = made.hold(&syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET})
	attributes := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	if users {
		attributes.Cloneflags |= unix.CLONE_NEWUSER
		mapping := []syscall.SysProcIDMap{{ContainerID: 0, HostID: userBase, Size: 65536}}
		attributes.UidMappings, attributes.GidMappings, attributes.GidMappingsEnableSetgroups = mapping, mapping, true
		attributes.Credential = &syscall.Credential{}
	}
	made.holder = made.hold(attributes)
	made.connectWorld()
	spec.Version, spec.Uplink = netplan.Version, "eth0"
	spec.SocketDirectory, spec.StatusFile = made.path("sockets"), made.path("status.json")
	for _, name := range []string{"sockets", "containers", "shells", "guest"} {
		must(t, os.Mkdir(made.path(name), 0o777))
		must(t, os.Chmod(made.path(name), 0o777))
	}
	made.plan = spec
	made.writePlan()
	return made
}

// writePlan writes the measured part of the plan, and the rest as unmeasured.
func (p *pod) writePlan() {
	p.measure("plan.json", p.plan)
	p.unmeasured.Cluster = unmeasured.Cluster{Block: netip.MustParsePrefix("172.30.0.0/16"), Denied: p.plan.Denied,
		ProbeSources: p.plan.ProbeSources, Resolvers: p.plan.Resolver.Upstream, Refused: p.plan.Resolver.Refused}
	p.writeUnmeasured()
}

func (p *pod) path(parts ...string) string {
	return filepath.Join(append([]string{p.directory}, parts...)...)
}

func openTempDir(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	for _, one := range []string{filepath.Dir(directory), directory} {
		must(t, os.Chmod(one, 0o777))
	}
	return directory
}

// hold starts a process that keeps namespaces alive, and returns its id.
func (p *pod) hold(attributes *syscall.SysProcAttr) int {
	command := exec.Command(filepath.Join(tools, "testprogram"), "pause")
	command.SysProcAttr = attributes
	must(p.t, command.Start())
	p.t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return command.Process.Pid
}

// enter returns the command that runs arguments in the Pod's own namespaces.
func (p *pod) enter(arguments ...string) *exec.Cmd {
	line := []string{"-t", strconv.Itoa(p.holder), "-n", "-i", "-u"}
	if p.users {
		line = append(line, "-U", "-S", "0", "-G", "0")
	}
	return exec.Command("nsenter", append(append(line, "--"), arguments...)...)
}

// sidecar is enter for a part of the guest, which has the Pod's measurement at its place.
func (p *pod) sidecar(arguments ...string) *exec.Cmd {
	entered := p.enter(arguments...)
	line := []string{"-m", "sh", "-c", `mount --bind "$0" ` + guestRoot + ` && exec "$@"`, p.path("guest")}
	return exec.Command("unshare", append(line, entered.Args...)...)
}

// measure writes a document that the measurement names.
func (p *pod) measure(name string, document any) {
	p.t.Helper()
	writeJSON(p.t, p.path(name), document)
	p.digests[name] = digestOf(readFile(p.t, p.path(name)))
	writeMeasurement(p.t, p.path("guest"), p.digests)
}

// writeUnmeasured writes what the measurement does not name.
func (p *pod) writeUnmeasured() { writeJSON(p.t, p.path(unmeasured.FileName), p.unmeasured) }

func digestOf(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

// writeMeasurement writes the measurement of a Pod without a TEE that names these documents.
func writeMeasurement(t *testing.T, directory string, digests map[string]string) {
	t.Helper()
	writeJSON(t, filepath.Join(directory, measured.FileName), measured.Measurement{
		Version: measured.Version, Service: "cloister", ConfigDigest: digestOf([]byte(configBytes)), Documents: digests, Host: measured.Host{TEE: "None"}})
}

// startNetwork starts `guest net` and waits until it is ready.
func (p *pod) startNetwork() {
	p.t.Helper()
	if p.users {
		must(p.t, os.Chown(p.directory, userBase, userBase))
	}
	_ = os.Remove(p.path("status.json"))
	p.network = p.sidecar(filepath.Join(tools, "testprogram"), "confined", numbers(networkCapabilities), filepath.Join(tools, "guest"), "net", "-plan", p.path("plan.json"))
	p.log = &bytes.Buffer{}
	p.network.Stderr = p.log
	must(p.t, p.network.Start())
	command, ended := p.network, make(chan struct{})
	p.networkEnded = ended
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	p.t.Cleanup(func() {
		_ = command.Process.Kill()
		<-ended
	})
	until(p.t, "the network is ready", func() bool {
		select {
		case <-ended:
			p.t.Fatalf("guest net exited: %s", p.log)
		default:
		}
		status, err := network.ReadStatus(p.path("status.json"))
		return err == nil && status.Ready
	})
}

// user returns the uid of a user of the Pod, as seen from outside.
func (p *pod) user(id int) string {
	if p.users {
		id += userBase
	}
	return strconv.Itoa(id)
}

// startFDStore starts `guest keep`, without any capability, and adds it to the plan.
func (p *pod) startFDStore() *exec.Cmd {
	p.t.Helper()
	p.plan.FDStoreSocket = p.path("keeper.sock")
	p.writePlan()
	must(p.t, os.MkdirAll(p.path("guest", measured.PublishedName), 0o755))
	writeMeasurement(p.t, p.path("guest", measured.PublishedName), p.digests)
	fdStore := p.sidecar("setpriv", "--bounding-set", "-all", "--inh-caps", "-all", filepath.Join(tools, "guest"), "keep", "-socket", p.plan.FDStoreSocket, "-evidence", "none")
	must(p.t, fdStore.Start())
	p.t.Cleanup(func() {
		_ = fdStore.Process.Kill()
		_ = fdStore.Wait()
	})
	until(p.t, "the fd store listens", func() bool { return exists(p.plan.FDStoreSocket) })
	return fdStore
}

// killFDStore kills `guest keep`, as a crash would, and waits until it is dead.
func (p *pod) killFDStore(fdStore *exec.Cmd) {
	must(p.t, fdStore.Process.Kill())
	_ = fdStore.Wait() // returns that it was killed
}

// killNetwork kills `guest net`, as a crash would, and waits until it is dead.
func (p *pod) killNetwork() {
	must(p.t, p.network.Process.Kill())
	<-p.networkEnded
}

// container is one started container.
type container struct {
	pod     *pod
	name    string
	command *exec.Cmd
	ended   chan struct{}
	first   int
	output  *bytes.Buffer
	problem *bytes.Buffer
}

// document returns a container's spec with the fields that the tests need.
func document(name string, arguments ...string) containerspec.Spec {
	return containerspec.Spec{
		Version: containerspec.Version, Name: name, Hostname: strings.ReplaceAll(strings.ToLower(name), "_", "-"), IPC: containerspec.IPCPrivate,
		Network:    &containerspec.NetworkAttachment{Socket: "/wire/wiring.sock", DeadlineSeconds: 60},
		Image:      containerspec.ImageConfig{Config: entrypoint.Config{Entrypoint: []string{"/bin/testprogram"}, Command: arguments}},
		GuestPaths: []string{"/guest", "/wire"}, User: "1000:1000", LowPorts: true,
	}
}

func (p *pod) root(name string) string { return p.path("containers", name, "root") }

// prepare writes a container's root file system and its spec.
func (p *pod) prepare(about containerspec.Spec) {
	p.t.Helper()
	for _, one := range []string{"bin", "etc", "proc", "sys", "dev", "dev/mqueue", "dev/pts", "shell", "guest", "mnt", "wire", "report", "tmp", "data", "state"} {
		must(p.t, os.MkdirAll(filepath.Join(p.root(about.Name), one), 0o755))
	}
	for _, one := range []string{"tmp", "state"} {
		must(p.t, os.Chmod(filepath.Join(p.root(about.Name), one), 0o777))
	}
	for name, content := range map[string]string{
		"etc/passwd":      "root:x:0:0:root:/root:/bin/sh\napp:x:1234:1235:App:/home/app:/bin/sh\n",
		"etc/group":       "root:x:0:\napp:x:1235:\nextra:x:1300:app\n",
		"etc/hosts":       podIP + "\tpod\n",
		"etc/resolv.conf": "nameserver 10.96.0.10\n",
		"dev/null":        "",
	} {
		must(p.t, os.WriteFile(filepath.Join(p.root(about.Name), name), []byte(content), 0o644))
	}
	_ = os.Symlink("pts/ptmx", filepath.Join(p.root(about.Name), "dev/ptmx")) // exists already on a second start
	guest := p.path("containers", about.Name, "guest")
	must(p.t, os.MkdirAll(guest, 0o755))
	_ = os.Remove(filepath.Join(guest, "guest"))
	must(p.t, os.Link(filepath.Join(tools, "guest"), filepath.Join(guest, "guest")))
	writeJSON(p.t, filepath.Join(guest, "spec.json"), about)
	writeMeasurement(p.t, guest, map[string]string{"spec.json": digestOf(readFile(p.t, filepath.Join(guest, "spec.json")))})
	must(p.t, os.MkdirAll(p.path("sockets", about.Name), 0o755))
	must(p.t, os.MkdirAll(p.path("shells", about.Name), 0o755))
	for _, one := range []string{p.path("containers", about.Name), p.path("sockets", about.Name), p.path("shells", about.Name), filepath.Join(p.root(about.Name), "state")} {
		must(p.t, os.Chmod(one, 0o777))
		if p.users {
			must(p.t, os.Chown(one, userBase, userBase))
		}
	}
}

// start starts a container as a runtime does, with the launch capabilities, in the Pod's namespaces.
func (p *pod) start(about containerspec.Spec, extra ...uint) *container {
	p.t.Helper()
	p.prepare(about)
	return p.launch(about.Name, []string{"/guest/guest", "exec", "-spec", "/guest/spec.json"}, extra...)
}

func (p *pod) launch(name string, arguments []string, extra ...uint) *container {
	p.t.Helper()
	pidFile := p.path("containers", name, "pid")
	_ = os.Remove(pidFile)
	binds := map[string]string{"/bin": tools, "/guest": p.path("containers", name, "guest"), guestRoot: p.path("containers", name, "guest"), "/wire": p.path("sockets", name)}
	maps.Copy(binds, p.binds[name])
	order, err := json.Marshal(map[string]any{
		"Root":         p.root(name),
		"Binds":        binds,
		"Writable":     map[string]string{"/shell": p.path("shells", name)},
		"Capabilities": append(append([]uint{}, launchCapabilities...), extra...),
		"Arguments":    arguments, "Environment": []string{"GREETING=hello", "HOME=/root"}, "PidFile": pidFile,
	})
	must(p.t, err)
	made := &container{pod: p, name: name, ended: make(chan struct{}), output: &bytes.Buffer{}, problem: &bytes.Buffer{}}
	made.command = p.enter(filepath.Join(tools, "testprogram"), "container", string(order))
	made.command.Stdout, made.command.Stderr = made.output, made.problem
	must(p.t, made.command.Start())
	go func() {
		_ = made.command.Wait()
		close(made.ended)
	}()
	p.t.Cleanup(made.kill)
	until(p.t, name+" has a process", func() bool {
		text, err := os.ReadFile(pidFile)
		if err == nil {
			made.first, err = strconv.Atoi(string(text))
		}
		return err == nil || made.isEnded()
	})
	return made
}

func (c *container) isEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

func (c *container) kill() {
	if c.first != 0 && !c.isEnded() {
		_ = unix.Kill(c.first, unix.SIGKILL)
	}
	_ = c.command.Process.Kill()
	<-c.ended
}

// wait waits for the exit and returns the exit code.
func (c *container) wait() int {
	c.pod.t.Helper()
	select {
	case <-c.ended:
	case <-time.After(patience):
		c.pod.t.Fatalf("%s did not exit; it wrote: %s %s", c.name, c.output, c.problem)
	}
	return c.command.ProcessState.ExitCode()
}

// file waits for a file that the program writes, and returns its content.
func (c *container) file(name string) string {
	c.pod.t.Helper()
	var content []byte
	until(c.pod.t, c.name+" writes "+name, func() bool {
		if c.isEnded() {
			c.pod.t.Fatalf("%s exited with %d: %s %s; network: %s", c.name, c.command.ProcessState.ExitCode(), c.output, c.problem, c.pod.log)
		}
		var err error
		content, err = os.ReadFile(filepath.Join(c.pod.root(c.name), name))
		return err == nil && len(content) > 0
	})
	return string(content)
}

// exec runs a command in the container's namespaces as a runtime's exec does, with
// the launch capabilities; podNetwork leaves it in the Pod's network, as when the
// runtime is faster than the launcher.
func (c *container) exec(podNetwork bool, arguments ...string) (string, int) {
	c.pod.t.Helper()
	process := strconv.Itoa(c.first)
	line := []string{"-t", process, "-m", "-p", "-r", "-w"}
	space := c.first
	if podNetwork {
		space = c.pod.holder
	}
	for _, kind := range []string{"net", "ipc", "uts"} {
		line = append(line, fmt.Sprintf("--%s=/proc/%d/ns/%s", kind, space, kind))
	}
	if c.pod.users {
		line = append(line, "-U", "-S", "0", "-G", "0")
	}
	line = append(line, "--", "/bin/testprogram", "confined", numbers(launchCapabilities))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, "nsenter", append(line, arguments...)...)
	output, err := command.CombinedOutput()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		c.pod.t.Fatalf("exec in %s: %v", c.name, err)
	}
	return string(output), command.ProcessState.ExitCode()
}

func numbers(capabilities []uint) string {
	words := []string{}
	for _, one := range capabilities {
		words = append(words, strconv.FormatUint(uint64(one), 10))
	}
	return strings.Join(words, ",")
}

// until polls a condition with a generous deadline.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not seen within %s: %s", patience, what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func writeJSON(t *testing.T, path string, value any) {
	t.Helper()
	data, err := json.Marshal(value)
	must(t, err)
	must(t, os.WriteFile(path+".new", data, 0o644))
	must(t, os.Rename(path+".new", path))
}
