package containerspec

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"

	"cloister.dev/guest/internal/foundation/entrypoint"
)

func valid() Spec {
	return Spec{Version: Version, Name: "web", Hostname: "web", IPC: IPCPrivate,
		Network: &NetworkAttachment{Socket: "/wire/wiring.sock", DeadlineSeconds: 30}, GuestPaths: []string{"/guest"},
		Image:  ImageConfig{Config: entrypoint.Config{Entrypoint: []string{"/app"}, Command: []string{"serve"}}},
		Health: &HealthCheck{Test: []string{"CMD-SHELL", "true"}, IntervalMillis: 1, TimeoutMillis: 1, Retries: 3}, Agent: &AgentReporting{Socket: "/report/report.sock", DeadlineSeconds: 1}}
}

func TestValidate(t *testing.T) {
	if err := valid().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Spec){
		"version":                 func(c *Spec) { c.Version = 0 },
		"name":                    func(c *Spec) { c.Name = "" },
		"hostname":                func(c *Spec) { c.Hostname = "A_b" },
		"ipc":                     func(c *Spec) { c.IPC = "host" },
		"command":                 func(c *Spec) { c.Entrypoint = []string{} },
		"capabilities[0]":         func(c *Spec) { c.Capabilities = []string{"SYS_ADMIN"} },
		"without the prefix":      func(c *Spec) { c.Capabilities = []string{"CAP_CHOWN"} },
		"workingDir":              func(c *Spec) { c.WorkingDir = "x" },
		"guestPaths":              func(c *Spec) { c.GuestPaths = nil },
		"network.socket":          func(c *Spec) { c.Network.Socket = "x" },
		"network.deadlineSeconds": func(c *Spec) { c.Network.DeadlineSeconds = 0 },
		"agent.socket":            func(c *Spec) { c.Agent = &AgentReporting{Socket: "x", DeadlineSeconds: 1} },
		"agent.deadlineSeconds":   func(c *Spec) { c.Agent = &AgentReporting{Socket: "/x"} },
		"lowPorts":                func(c *Spec) { c.Network, c.LowPorts = nil, true },
		"tmpfs":                   func(c *Spec) { c.Tmpfs = map[string]string{"/guest/x": ""} },
		"tmpfs[/data]":            func(c *Spec) { c.Tmpfs = map[string]string{"/data": "size=x"} },
		"limits":                  func(c *Spec) { c.Limits = map[string]Limit{"cpu": {}} },
		"limits[nofile]":          func(c *Spec) { c.Limits = map[string]Limit{"nofile": {Soft: 2, Hard: 1}} },
		"health.test":             func(c *Spec) { c.Health.Test = []string{"NONE"} },
		"health.retries":          func(c *Spec) { c.Health.Retries = 0 },
		"health: needs agent":     func(c *Spec) { c.Agent = nil },
		"health: interval":        func(c *Spec) { c.Health.IntervalMillis = 0 },
		"shells":                  func(c *Spec) { c.Shells = &Shells{Socket: "/shell/shell.sock"} },
		"stop.signal":             func(c *Spec) { c.Stop = &Stop{Signal: "NOPE"} },
		"stop.timeoutMillis":      func(c *Spec) { c.Stop = &Stop{Signal: "TERM", TimeoutMillis: -1} },
	} {
		spec := valid()
		change(&spec)
		if err := spec.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestEntrypointAndCommand(t *testing.T) {
	for _, one := range []struct{ entrypoint, command, want []string }{
		{nil, nil, []string{"/app", "serve"}},
		{nil, []string{"x"}, []string{"/app", "x"}},
		{[]string{"/other"}, nil, []string{"/other"}},
		{[]string{"/other"}, []string{"x"}, []string{"/other", "x"}},
		{nil, []string{}, []string{"/app"}},
	} {
		spec := valid()
		spec.Entrypoint, spec.Command = one.entrypoint, one.command
		if got, err := spec.Arguments(); err != nil || !slices.Equal(got, one.want) {
			t.Errorf("%v %v: %v, %v", one.entrypoint, one.command, got, err)
		}
	}
}

func TestParseSignal(t *testing.T) {
	for text, want := range map[string]syscall.Signal{"SIGTERM": 15, "term": 15, "9": 9, "RTMIN": 34, "SIGRTMIN+3": 37, "RTMAX-1": 63, "64": 64} {
		if got, err := ParseSignal(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "SIG", "0", "65", "RTMIN+31", "RTMAX-31", "+1"} {
		if got, err := ParseSignal(text); err == nil {
			t.Errorf("%q became %d", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	data, err := json.Marshal(valid())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"stop":{"signal":"RTMIN+1"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, err := Parse(data)
		if err != nil {
			return
		}
		if signal := spec.StopSignal(); signal < 1 || signal > 64 {
			t.Errorf("signal %d", signal)
		}
		if arguments, err := spec.Arguments(); err != nil || len(arguments) == 0 {
			t.Errorf("%v, %v", arguments, err)
		}
	})
}

func FuzzParseSignal(f *testing.F) {
	f.Add("SIGTERM")
	f.Add("RTMIN+255")
	f.Fuzz(func(t *testing.T, text string) {
		if number, err := ParseSignal(text); err == nil && (number < 1 || number > 64) {
			t.Errorf("%q became %d", text, number)
		}
	})
}
