package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/containerspec"
)

func TestDebugContainerExitsAsItsProgram(t *testing.T) {
	t.Parallel()
	run := newPod(t, false, shellsPlan("seven", "absent", "trap", "killed", "family", "stopped"))
	run.startNetwork()
	seven := run.start(open("seven", "exit", "7"))
	if code := seven.wait(); code != 7 || seven.output.String() != "to stdout\n" || seven.problem.String() != "to stderr\n" {
		t.Errorf("exited with %d, wrote %q and %q", code, seven.output, seven.problem)
	}
	about := open("absent")
	about.Entrypoint = []string{"no-such-program"}
	if code := run.start(about).wait(); code != 127 {
		t.Errorf("an absent program exited with %d", code)
	}
	trapped := run.start(open("trap", "trap", "/tmp/ready"))
	trapped.file("tmp/ready")
	must(t, unix.Kill(trapped.first, unix.SIGUSR1))
	if code := trapped.wait(); code != 100+int(unix.SIGUSR1) {
		t.Errorf("exited with %d: %s", code, trapped.problem)
	}
	killed := run.start(open("killed", "orphan", "/tmp/pid"))
	killed.file("tmp/pid")
	process, err := strconv.Atoi(killed.child("/tmp/pid"))
	must(t, err)
	must(t, unix.Kill(process, unix.SIGKILL))
	if code := killed.wait(); code != 137 {
		t.Errorf("a killed program exited with %d", code)
	}
	stopped := open("stopped", "trap", "/tmp/ready")
	stopped.Stop = &containerspec.Stop{Signal: "USR1", TimeoutMillis: 60000}
	ending := run.start(stopped)
	ending.file("tmp/ready")
	_, _ = ending.exec(false, "/guest/guest", "stop", "-spec", "/guest/spec.json")
	if code := ending.wait(); code != 100+int(unix.SIGUSR1) {
		t.Errorf("after the stop signal it exited with %d: %s", code, ending.problem)
	}
}

// children returns the pids, as seen from outside, of the children of the container's process 1. The
// kernel may leave some out while others exit.
func (c *container) children() []string {
	c.pod.t.Helper()
	var all []string
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", c.first))
	must(c.pod.t, err)
	for _, task := range tasks {
		listed, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", c.first, task.Name()))
		if err == nil { // else the thread has exited, and its children are another's
			all = append(all, strings.Fields(string(listed))...)
		}
	}
	return all
}

// child waits for the child of the container's process 1 that has a word in its command line, and
// returns its pid as seen from outside.
func (c *container) child(word string) string {
	c.pod.t.Helper()
	found := ""
	until(c.pod.t, "a child of process 1 with "+word, func() bool {
		for _, process := range c.children() {
			line, err := os.ReadFile("/proc/" + process + "/cmdline")
			if err == nil && strings.Contains(string(line), word) {
				found = process
			}
		}
		return found != ""
	})
	return found
}

// isOver reports whether a process has exited, reaped or not.
func isOver(process string) bool {
	stat, err := os.ReadFile("/proc/" + process + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestNoZombieIsLeft(t *testing.T) {
	t.Parallel()
	run := newPod(t, false, shellsPlan("family"))
	run.startNetwork()
	started := run.start(open("family", "family", "/tmp/ready"))
	started.file("tmp/ready")
	children := started.children()
	if len(children) < 20 {
		t.Fatalf("only %d processes were inherited by process 1", len(children))
	}
	for _, process := range children {
		until(t, process+" is reaped", func() bool {
			stat, err := os.ReadFile("/proc/" + process + "/stat")
			return err != nil || !strings.Contains(string(stat), ") Z ")
		})
	}
}

func TestChecksRunInDebugContainers(t *testing.T) {
	t.Parallel()
	for name, users := range map[string]bool{"host users": false, "user namespace": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newAgentPodWith(t, users, shellsPlan("app"), checkedContainer("app"))
			p.startNetwork()
			p.startAgent()
			about := checking("app", []string{"inspect", "/tmp/inspect"}, "trap", "/tmp/ready")
			about.Shells, about.GuestPaths = open("app").Shells, open("app").GuestPaths
			started := p.start(about)
			started.file("tmp/ready")
			p.health("app", "healthy", isHealthy)
			shown := seen(t, started)
			if files := strings.Join(shown.Files, " "); files != "0 1 2" && files != "0 1 2 3" {
				t.Errorf("open files of the check, the shells' socket perhaps: %q", files)
			}
			if strings.Join(shown.Devices, " ") != "lo eth0" || shown.Hostname != "app" || shown.Status["CapBnd"] != strings.Repeat("0", 16) {
				t.Errorf("the check saw %+v", shown)
			}
		})
	}
}

func TestOthersGetNoShell(t *testing.T) {
	t.Parallel()
	run := newPod(t, false, shellsPlan("app"))
	run.startNetwork()
	run.start(open("app", "trap", "/tmp/ready")).file("tmp/ready")
	// The tenant itself may connect, but is refused.
	output, err := exec.Command(filepath.Join(tools, "testprogram"), "ask", run.path("shells", "app", "shell.sock")).CombinedOutput()
	if err != nil || !strings.Contains(string(output), "user 0 may not start shells") {
		t.Errorf("%v: %s", err, output)
	}
}
