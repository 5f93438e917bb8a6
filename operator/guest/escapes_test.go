package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cloister.dev/guest/internal/containerspec"
)

// wantedEscapes is what each door answers inside a container, alternatives with a
// bar: by the mount, by the owner, or because a file is being executed. Which comes
// first depends on the user. The tests in real Pods hold against the same list.
func wantedEscapes(t *testing.T) map[string]string {
	t.Helper()
	wanted := map[string]string{}
	must(t, json.Unmarshal(readFile(t, "testdata/escapes.json"), &wanted))
	return wanted
}

func TestEveryDoorIsShut(t *testing.T) {
	t.Parallel()
	for name, variant := range map[string]struct {
		users, root, shells bool
	}{"user": {}, "debug": {shells: true}, "debug root in a user namespace": {users: true, root: true, shells: true}, "root": {root: true}, "user in a user namespace": {users: true}, "root in a user namespace": {users: true, root: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := newPod(t, variant.users, onePlan("app"))
			run.startNetwork()
			about := document("app", "escapes", "/wire/wiring.sock", "/guest/guest", "/guest/spec.json", "/guest")
			if variant.root {
				about.User = "0"
			}
			if variant.shells {
				about.Shells = &containerspec.Shells{Socket: "/shell/shell.sock", Client: sshUID}
			}
			started := run.start(about)
			if code := started.wait(); code != 0 {
				t.Fatalf("ended with %d: %s %s", code, started.problem, run.log)
			}
			checkDoors(t, started.output.Bytes())
		})
	}
}

func checkDoors(t *testing.T, output []byte) {
	t.Helper()
	wantDoors := wantedEscapes(t)
	answers := map[string]string{}
	must(t, json.Unmarshal(output, &answers))
	for door, answer := range answers {
		if want, known := wantDoors[door]; !known || !isShut(answer, want) {
			t.Errorf("%s: %s, want %s", door, answer, want)
		}
	}
	if len(answers) != len(wantDoors) {
		t.Errorf("%d doors tried, %d known", len(answers), len(wantDoors))
	}
}

func isShut(answer, want string) bool { return slices.Contains(strings.Split(want, "|"), answer) }

func TestLaunchRightsOfAProbeAreOutOfReach(t *testing.T) {
	t.Parallel()
	run := newPod(t, false, onePlan("app"))
	run.startNetwork()
	about := document("app", "hostile", "/tmp/enough", "/tmp/result")
	about.User = "0"
	about.Health = &containerspec.HealthCheck{Test: []string{"CMD", "/bin/testprogram", "inspect"}, IntervalMillis: 1, TimeoutMillis: 60000, Retries: 3, StateFile: "/state/health"}
	started := run.start(about)
	started.file("tmp/result")
	for range 20 {
		if output, code := started.exec(false, "/guest/guest", "probe", "-spec", "/guest/spec.json"); code != 0 {
			t.Fatalf("the probe ended with %d: %s", code, output)
		}
	}
	must(t, writeFile(run.root("app")+"/tmp/enough", "yes"))
	if code := started.wait(); code != 0 {
		t.Fatalf("ended with %d: %s", code, started.problem)
	}
	words := strings.Fields(string(readFile(t, run.root("app")+"/tmp/result")))
	seen, _ := strconv.Atoi(words[0])
	seized, _ := strconv.Atoi(words[1])
	t.Logf("%d sightings of threads with launch rights, %d seized", seen, seized)
	if seen == 0 || seized != 0 {
		t.Errorf("%d sightings, %d seized", seen, seized)
	}
}
