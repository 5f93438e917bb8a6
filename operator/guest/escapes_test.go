package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cloister.dev/guest/internal/container/containerspec"
)

// wantedEscapes maps each escape to its expected result inside a container,
// alternatives separated by a bar: refused by the mount, by the owner, or because a
// file is being executed. Which comes first depends on the user. The tests in real
// Pods compare with the same list.
func wantedEscapes(t *testing.T) map[string]string {
	t.Helper()
	expected := map[string]string{}
	must(t, json.Unmarshal(readFile(t, "testdata/escapes.json"), &expected))
	return expected
}

// attack: escape
func TestEveryEscapeIsRefused(t *testing.T) {
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
				t.Fatalf("exited with %d: %s %s", code, started.problem, run.log)
			}
			checkDoors(t, started.output.Bytes())
		})
	}
}

func checkDoors(t *testing.T, output []byte) {
	t.Helper()
	wantEscapes := wantedEscapes(t)
	answers := map[string]string{}
	must(t, json.Unmarshal(output, &answers))
	for escape, result := range answers {
		if want, known := wantEscapes[escape]; !known || !matches(result, want) {
			t.Errorf("%s: %s, want %s", escape, result, want)
		}
	}
	if len(answers) != len(wantEscapes) {
		t.Errorf("%d escapes tried, %d known", len(answers), len(wantEscapes))
	}
}

func matches(result, want string) bool { return slices.Contains(strings.Split(want, "|"), result) }

func TestLaunchCapabilitiesOfAHookCannotBeSeized(t *testing.T) {
	t.Parallel()
	run := newPod(t, false, onePlan("app"))
	run.startNetwork()
	about := document("app", "hostile", "/tmp/enough", "/tmp/result")
	about.User = "0"
	about.Stop = &containerspec.Stop{Signal: "URG"} // which a program ignores by default, signal(7)
	started := run.start(about)
	started.file("tmp/result")
	for range 20 {
		if output, code := started.exec(false, "/guest/guest", "stop", "-spec", "/guest/spec.json"); code != 0 {
			t.Fatalf("the hook exited with %d: %s", code, output)
		}
	}
	must(t, writeFile(run.root("app")+"/tmp/enough", "yes"))
	if code := started.wait(); code != 0 {
		t.Fatalf("exited with %d: %s", code, started.problem)
	}
	words := strings.Fields(string(readFile(t, run.root("app")+"/tmp/result")))
	seen, _ := strconv.Atoi(words[0])
	seized, _ := strconv.Atoi(words[1])
	t.Logf("%d sightings of threads with launch capabilities, %d seized", seen, seized)
	if seen == 0 || seized != 0 {
		t.Errorf("%d sightings, %d seized", seen, seized)
	}
}
