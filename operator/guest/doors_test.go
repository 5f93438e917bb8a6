package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cloister.dev/guest/internal/spec"
)

// fileRefused are the answers of a file that must not be written: by its mount, by
// its owner, or because it is being executed. Which comes first depends on the user.
const fileRefused = "EROFS|EACCES|ETXTBSY"

// wantDoors is what each door answers inside a container, alternatives with a bar.
var wantDoors = map[string]string{
	"setns own net": "EPERM", "setns own mnt": "EPERM",
	"unshare net": "EPERM", "unshare user": "EPERM", "unshare user and net": "EPERM", "unshare mount": "EPERM",
	"clone user": "EPERM", "clone3": "ENOSYS",
	"mount": "EPERM", "fsopen": "EPERM", "open_tree": "EPERM", "move_mount": "EPERM", "umount": "EPERM", "pivot_root": "EPERM", "chroot": "EPERM",
	"bpf": "EPERM", "keyctl": "EPERM", "add_key": "EPERM", "request_key": "EPERM", "perf_event_open": "EPERM", "userfaultfd": "EPERM", "io_uring_setup": "EPERM",
	"init_module": "EPERM", "kexec_load": "EPERM", "open_by_handle_at": "EPERM", "reboot": "EPERM", "sethostname": "EPERM", "setdomainname": "EPERM",
	"swapon": "EPERM", "settimeofday": "EPERM", "syslog": "EPERM", "acct": "EPERM", "quotactl": "EPERM", "fanotify_init": "EPERM", "vhangup": "EPERM", "personality": "EPERM",
	"capset all": "EPERM", "ambient": "EPERM", "bounding drop": "EPERM", "setgroups": "EPERM", "mknod": "EPERM",
	"raw socket": "EPERM", "raw ipv6 socket": "EPERM", "packet socket": "EPERM", "vsock socket": "EPERM", "vsock socket, widened": "EPERM", "alg socket": "EPERM",
	"packet filter": "EPERM", "address": "EPERM", "socket mark": "EPERM", "transparent socket": "EPERM",
	"wire again":  "EACCES|the enclave's network refused: the network namespace is already adopted",
	"write guest": fileRefused, "write spec": fileRefused, "remove guest": fileRefused, "replace guest": "EXDEV", "remove wiring": fileRefused,
	"core_pattern": fileRefused, "ip_forward": fileRefused, "hosts": fileRefused,
	"devices of Pod": "empty", "virtual devices": "empty",
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
			about := document("app", "doors", "/wire/wiring.sock", "/guest")
			if variant.root {
				about.User = "0"
			}
			if variant.shells {
				about.Shells = &spec.Shells{Socket: "/shell/shell.sock", Client: sshUID}
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
	about.Health = &spec.Health{Test: []string{"CMD", "/bin/trial", "look"}, IntervalMillis: 1, TimeoutMillis: 60000, Retries: 3, StateFile: "/state/health"}
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
