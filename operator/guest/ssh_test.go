package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/containerspec"
	"cloister.dev/guest/internal/container/sshd"
	"cloister.dev/guest/internal/foundation/unmeasured"
	"cloister.dev/guest/internal/network/netplan"
)

const (
	sshPort = 2222
	sshUID  = 65006
)

// debug is a debug enclave: a Pod with `guest ssh` and one key that may log in.
type debug struct {
	*pod
	t *testing.T
	// stop kills `guest ssh`.
	stop func()
}

// shellsPlan returns a plan that admits SSH, as the operator writes it for debug enclaves.
func shellsPlan(names ...string) netplan.Plan {
	spec := onePlan(names...)
	spec.Inbound = append(spec.Inbound, sshPort)
	return spec
}

// open returns the spec of a container with shells.
func open(name string, arguments ...string) containerspec.Spec {
	about := document(name, arguments...)
	about.GuestPaths = append(about.GuestPaths, "/shell")
	about.Shells = &containerspec.Shells{Socket: "/shell/shell.sock", Client: sshUID}
	return about
}

// newDebug starts the network of a debug enclave and `guest ssh` for its containers.
func newDebug(t *testing.T, users bool, names ...string) *debug {
	t.Helper()
	needNamespaces(t)
	for _, program := range []string{"ssh", "sftp", "ssh-keygen", "setpriv"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s, of OpenSSH and util-linux", program)
		}
	}
	made := &debug{pod: newPod(t, users, shellsPlan(names...)), t: t}
	for _, name := range []string{"mine", "other"} {
		made.local("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", made.path(name))
	}
	state := made.path("ssh")
	must(t, os.Mkdir(state, 0o777))
	must(t, os.Chmod(state, 0o777))
	public, err := os.ReadFile(made.path("mine.pub"))
	must(t, err)
	spec := sshd.Spec{Version: sshd.Version, Port: sshPort, HostKeyFile: filepath.Join(state, "host"), PublicKeyFile: filepath.Join(state, "host.pub")}
	made.unmeasured.SSHKeys = []unmeasured.SSHKey{{Name: "mine", PublicKey: strings.TrimSpace(string(public))}}
	for _, name := range names {
		spec.Containers = append(spec.Containers, sshd.Target{Name: name, Socket: made.path("shells", name, "shell.sock")})
	}
	made.measure("ssh.json", spec)
	made.writeUnmeasured()
	made.startNetwork()
	made.startServer()
	return made
}

// startServer starts `guest ssh` without privileges, and waits until it serves.
func (d *debug) startServer() {
	d.t.Helper()
	server, log := d.sidecar("setpriv", "--reuid", strconv.Itoa(sshUID), "--regid", strconv.Itoa(sshUID), "--clear-groups", "--bounding-set", "-all", "--inh-caps", "-all",
		filepath.Join(tools, "guest"), "ssh", "-spec", d.path("ssh.json")), &bytes.Buffer{}
	server.Stderr = log
	must(d.t, server.Start())
	d.stop = sync.OnceFunc(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if d.t.Failed() {
			d.t.Logf("guest ssh: %s", log)
		}
	})
	d.t.Cleanup(d.stop)
	until(d.t, "the SSH server listens", func() bool {
		key, err := os.ReadFile(d.path("ssh", "host.pub"))
		if err != nil {
			return false
		}
		must(d.t, os.WriteFile(d.path("known_hosts"), []byte(fmt.Sprintf("[%s]:%d %s", podIP, sshPort, key)), 0o600))
		return exec.Command("nsenter", "-t", strconv.Itoa(d.world), "-n", "--", "ssh-keyscan", "-T", "5", "-p", strconv.Itoa(sshPort), podIP).Run() == nil
	})
}

func (d *debug) local(arguments ...string) {
	d.t.Helper()
	if output, err := exec.Command(arguments[0], arguments[1:]...).CombinedOutput(); err != nil {
		d.t.Fatalf("%s: %v\n%s", arguments[0], err, output)
	}
}

// client returns the command of a real OpenSSH program outside the Pod.
func (d *debug) client(program, key string, arguments ...string) *exec.Cmd {
	line := []string{"-t", strconv.Itoa(d.world), "-n", "--", program, "-F", "none", "-i", d.path(key),
		"-o", "UserKnownHostsFile=" + d.path("known_hosts"), "-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30"}
	port := "-p"
	if program != "ssh" {
		port = "-P"
	}
	return exec.Command("nsenter", append(append(line, port, strconv.Itoa(sshPort)), arguments...)...)
}

// ssh runs a real client and returns its output, error output and exit code.
func (d *debug) ssh(key, input string, arguments ...string) (output, problem string, code int) {
	d.t.Helper()
	command := d.client("ssh", key, arguments...)
	var out, err bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &out, &err
	must(d.t, command.Start())
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		_ = command.Process.Kill()
		<-ended
		d.t.Fatalf("ssh %v did not exit: %s %s", arguments, &out, &err)
	}
	return out.String(), err.String(), command.ProcessState.ExitCode()
}

func at(name string) string { return name + "@" + podIP }

func TestShellsHaveThePrivilegesOfTheProgram(t *testing.T) {
	t.Parallel()
	for name, variant := range map[string]struct {
		users bool
		user  string
	}{"host users": {user: "app"}, "root": {user: "0"}, "user namespace": {users: true, user: "app"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := newDebug(t, variant.users, "app")
			about := open("app", "inspect", "/tmp/inspect")
			about.Image.Config.Command = []string{"trap", "/tmp/ready"}
			about.User, about.Groups, about.WorkingDir = variant.user, []int{2000}, "/tmp"
			started := run.start(about)
			started.file("tmp/ready")
			if output, problem, code := run.ssh("mine", "", "-o", "SetEnv=GREETING=good-day EXTRA=1", at("app"), "/bin/testprogram inspect"); code != 0 {
				t.Fatalf("ssh exited with %d: %s %s", code, output, problem)
			} else {
				checkShell(t, output, variant.user)
			}
		})
	}
}

func checkShell(t *testing.T, output, user string) {
	t.Helper()
	var shown sight
	must(t, json.Unmarshal([]byte(output), &shown))
	expected := map[string]string{"CapPrm": strings.Repeat("0", 16), "CapEff": strings.Repeat("0", 16), "CapBnd": strings.Repeat("0", 16), "CapAmb": strings.Repeat("0", 16),
		"NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "2", "Uid": "0\t0\t0\t0"}
	if user != "0" {
		expected["Uid"], expected["Gid"] = "1234\t1234\t1234\t1234", "1235\t1235\t1235\t1235"
	}
	for key, value := range expected {
		if got := strings.TrimSpace(shown.Status[key]); got != value {
			t.Errorf("%s is %q, want %q", key, got, value)
		}
	}
	if shown.Directory != "/tmp" || shown.Hostname != "app" || strings.Join(shown.Devices, " ") != "lo eth0" || shown.Pid == 1 {
		t.Errorf("directory %s, host %s, devices %v, pid %d", shown.Directory, shown.Hostname, shown.Devices, shown.Pid)
	}
	if shown.Variables["GREETING"] != "good-day" || shown.Variables["EXTRA"] != "1" || shown.Variables["PATH"] == "" {
		t.Errorf("variables %v", shown.Variables)
	}
	if files := strings.Join(shown.Files, " "); files != "0 1 2" && files != "0 1 2 3" {
		t.Errorf("open files %q", files)
	}
}

func TestShellsPassStreamsCodesAndSignals(t *testing.T) {
	t.Parallel()
	run := newDebug(t, false, "app", "bare")
	run.start(open("app", "trap", "/tmp/ready")).file("tmp/ready")
	much := strings.Repeat("0123456789abcdef", 64<<10)
	if output, problem, code := run.ssh("mine", much, at("app"), "/bin/testprogram copy"); code != 0 || output != much || problem != fmt.Sprintf("copied %d\n", len(much)) {
		t.Errorf("copy exited with %d, %d bytes were returned: %s", code, len(output), problem)
	}
	for line, expected := range map[string]int{"/bin/testprogram exit 7": 7, "/bin/absent": 127, "/etc/hosts": 126, "/bin/testprogram left": 0} {
		if output, problem, code := run.ssh("mine", "", at("app"), line); code != expected {
			t.Errorf("%s exited with %d: %s %s", line, code, output, problem)
		}
	}
	if output, problem, code := run.ssh("mine", "", at("bare"), "/bin/testprogram inspect"); code != 1 || !strings.Contains(problem, "the container does not run") {
		t.Errorf("a container that does not run: %d %s %s", code, output, problem)
	}
	if output, problem, code := run.ssh("mine", "", at("root"), "/bin/testprogram inspect"); code != 1 || !strings.Contains(problem, `no container "root"`) || !strings.Contains(problem, "app, bare") {
		t.Errorf("no such container: %d %s %s", code, output, problem)
	}
	if output, problem, code := run.ssh("mine", "", at("app")); code != 127 || !strings.Contains(problem, "the image has no shell") {
		t.Errorf("an image without a shell: %d %s %s", code, output, problem)
	}
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	for name, users := range map[string]bool{"host users": false, "user namespace": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := newDebug(t, users, "app")
			about := open("app", "trap", "/tmp/ready")
			run.prepare(about)
			must(t, os.WriteFile(filepath.Join(run.root("app"), "etc/passwd"), []byte("me:x:1000:1000::/tmp:/bin/testprogram\n"), 0o644))
			run.launch("app", []string{"/guest/guest", "exec", "-spec", "/guest/spec.json"}).file("tmp/ready")
			// The client gets its own terminal, which is then resized.
			held, used := pty(t)
			defer held.Close()
			command := run.client("ssh", "mine", at("app"))
			command.Stdin, command.Stdout, command.Stderr = used, used, used
			command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			command.Env = append(os.Environ(), "TERM=vt100")
			must(t, command.Start())
			used.Close()
			read := &transcript{}
			go read.from(held)
			read.expect(t, "ready vt100")
			write(t, held, "size\r")
			read.expect(t, "size 91 33")
			must(t, unix.IoctlSetWinsize(int(held.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 120, Row: 40}))
			read.expect(t, "changed 120 40")
			write(t, held, "exit 5\r")
			_ = command.Wait()
			if code := command.ProcessState.ExitCode(); code != 5 {
				t.Errorf("exited with %d: %s", code, read.text())
			}
		})
	}
}

func TestOnlyAuthorizedKeysLogIn(t *testing.T) {
	t.Parallel()
	run := newDebug(t, false, "app")
	run.start(open("app", "trap", "/tmp/ready")).file("tmp/ready")
	if _, problem, code := run.ssh("other", "", at("app"), "/bin/testprogram inspect"); code != 255 || !strings.Contains(problem, "Permission denied (publickey)") {
		t.Errorf("another key: %d %s", code, problem)
	}
	for name, forward := range map[string][]string{
		"local":  {"-W", "127.0.0.1:22", at("app")},
		"remote": {"-o", "ExitOnForwardFailure=yes", "-R", "9999:127.0.0.1:22", at("app"), "/bin/testprogram inspect"},
	} {
		if output, problem, code := run.ssh("mine", "", forward...); code == 0 {
			t.Errorf("%s forwarding was not refused: %s %s", name, output, problem)
		}
	}
	if output, _, code := run.ssh("mine", "", "-A", at("app"), "/bin/testprogram inspect"); code != 0 || strings.Contains(output, "SSH_AUTH_SOCK") {
		t.Errorf("agent forwarding: %d %s", code, output)
	}
}

func TestSFTPAndSCPCopyFiles(t *testing.T) {
	t.Parallel()
	run := newDebug(t, false, "app")
	about := open("app", "trap", "/tmp/ready")
	about.WorkingDir = "/tmp"
	run.start(about).file("tmp/ready")
	content := strings.Repeat("content\n", 50000)
	must(t, os.WriteFile(run.path("sent"), []byte(content), 0o644))
	for _, arguments := range [][]string{{run.path("sent"), at("app") + ":got"}, {at("app") + ":/tmp/got", run.path("back")}} {
		if output, err := run.client("scp", "mine", arguments...).CombinedOutput(); err != nil {
			t.Fatalf("scp %v: %v: %s", arguments, err, output)
		}
	}
	if back := string(readFile(t, run.path("back"))); back != content {
		t.Errorf("%d bytes were returned", len(back))
	}
	copied, err := os.Stat(filepath.Join(run.root("app"), "tmp/got"))
	must(t, err)
	if owner := ownerOf(copied); owner != 1000 {
		t.Errorf("the file belongs to %d", owner)
	}
	if output, err := run.client("scp", "mine", run.path("sent"), at("app")+":/etc/got").CombinedOutput(); err == nil {
		t.Errorf("wrote where the program may not: %s", output)
	}
}

func TestServerRestartsWithTheSameHostKey(t *testing.T) {
	t.Parallel()
	run := newDebug(t, false, "app")
	started := run.start(open("app", "trap", "/tmp/ready"))
	started.file("tmp/ready")
	before := string(readFile(t, run.path("ssh", "host.pub")))
	run.stop()
	run.startServer()
	if after := string(readFile(t, run.path("ssh", "host.pub"))); after != before {
		t.Errorf("another host key: %s, before %s", after, before)
	}
	if _, problem, code := run.ssh("mine", "", at("app"), "/bin/testprogram exit 3"); code != 3 {
		t.Errorf("after the server's restart: %d %s", code, problem)
	}
	started.kill()
	must(t, os.Remove(filepath.Join(run.root("app"), "tmp/ready")))
	run.start(open("app", "trap", "/tmp/ready")).file("tmp/ready")
	if _, problem, code := run.ssh("mine", "", at("app"), "/bin/testprogram exit 4"); code != 4 {
		t.Errorf("after the container's restart: %d %s", code, problem)
	}
}

func TestEveryEscapeIsRefusedForAShell(t *testing.T) {
	t.Parallel()
	run := newDebug(t, false, "app")
	run.start(open("app", "trap", "/tmp/ready")).file("tmp/ready")
	output, problem, code := run.ssh("mine", "", at("app"), "/bin/testprogram escapes /wire/wiring.sock /guest/guest /guest/spec.json /guest")
	if code != 0 {
		t.Fatalf("exited with %d: %s", code, problem)
	}
	checkDoors(t, []byte(output))
}

func TestSignalsAndHangUpsReachAShell(t *testing.T) {
	t.Parallel()
	run := newDebug(t, false, "app")
	started := run.start(open("app", "trap", "/tmp/ready"))
	started.file("tmp/ready")
	key, err := ssh.ParsePrivateKey(readFile(t, run.path("mine")))
	must(t, err)
	var connection net.Conn
	inside(t, run.world, func() (err error) {
		connection, err = net.Dial("tcp4", net.JoinHostPort(podIP, strconv.Itoa(sshPort)))
		return err
	})
	// The host key is not checked here; OpenSSH checks it in the other tests.
	conn, channels, requests, err := ssh.NewClientConn(connection, podIP, &ssh.ClientConfig{User: "app",
		Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	must(t, err)
	client := ssh.NewClient(conn, channels, requests)
	defer client.Close()
	trapped, err := client.NewSession()
	must(t, err)
	must(t, trapped.Start("/bin/testprogram trap /tmp/trapped"))
	started.file("tmp/trapped")
	must(t, trapped.Signal(ssh.SIGUSR1))
	var ended *ssh.ExitError
	if err := trapped.Wait(); !errors.As(err, &ended) || ended.ExitStatus() != 100+int(unix.SIGUSR1) {
		t.Errorf("a signal: %v", err)
	}
	killed, err := client.NewSession()
	must(t, err)
	must(t, killed.Start("/bin/testprogram orphan /tmp/killed"))
	started.file("tmp/killed")
	must(t, killed.Signal(ssh.SIGKILL))
	if err := killed.Wait(); !errors.As(err, &ended) || ended.Signal() != "KILL" {
		t.Errorf("a killed program: %v", err)
	}
	left, err := client.NewSession()
	must(t, err)
	must(t, left.Start("/bin/testprogram trap /tmp/left"))
	started.file("tmp/left")
	program := started.child("/tmp/left")
	must(t, client.Close())
	until(t, "SIGHUP ends the program", func() bool { return isOver(program) })
}

// pty creates a terminal for a client: the master side and the side for the program.
func pty(t *testing.T) (held, used *os.File) {
	t.Helper()
	held, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	must(t, unix.IoctlSetPointerInt(int(held.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(held.Fd()), unix.TIOCGPTN)
	must(t, err)
	must(t, unix.IoctlSetWinsize(int(held.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 91, Row: 33}))
	used, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	return held, used
}

func write(t *testing.T, to io.Writer, text string) {
	t.Helper()
	_, err := io.WriteString(to, text)
	must(t, err)
}

func ownerOf(file os.FileInfo) uint32 {
	if about, known := file.Sys().(*syscall.Stat_t); known {
		return about.Uid
	}
	return ^uint32(0)
}

// transcript is the output of a terminal.
type transcript struct {
	mutex sync.Mutex
	shown []byte
}

func (r *transcript) from(held io.Reader) {
	buffer := make([]byte, 4096)
	for {
		count, err := held.Read(buffer)
		r.mutex.Lock()
		r.shown = append(r.shown, buffer[:count]...)
		r.mutex.Unlock()
		if err != nil {
			return
		}
	}
}

func (r *transcript) text() string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return string(r.shown)
}

func (r *transcript) expect(t *testing.T, expected string) {
	t.Helper()
	end := time.Now().Add(patience)
	for !strings.Contains(r.text(), expected) {
		if time.Now().After(end) {
			t.Fatalf("the terminal did not show %q: %q", expected, r.text())
		}
		time.Sleep(5 * time.Millisecond)
	}
}
