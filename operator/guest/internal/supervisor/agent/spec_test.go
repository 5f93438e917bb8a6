package agent

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"cloister.dev/guest/internal/foundation/measured"
	"cloister.dev/guest/internal/foundation/strictjson"
	"cloister.dev/guest/internal/foundation/unmeasured"
)

func valid() Spec {
	stages := map[string]Rule{}
	for _, name := range stageOrder {
		stages[name] = Rule{Skipped: "not here"}
	}
	for _, name := range ownStages {
		delete(stages, name)
	}
	return Spec{
		Version: Version, SocketDirectory: "/reports", Directory: "/agent", ServiceDirectory: "/service",
		Config: "/config/config.yml", TerminationFile: "/dev/termination-log",
		Shim: netip.MustParseAddrPort("127.0.0.1:8443"), Probes: netip.MustParseAddrPort("0.0.0.0:8441"), Stages: stages,
		Containers: []Container{{Name: "web", Image: "web@sha256:0", Restart: restartAlways, HealthWithinMillis: 60_000, CheckEveryMillis: 60_000}, {Name: "job", Restart: restartNo}},
		Metrics:    Metrics{CPUs: 2, MemoryBytes: 1},

		Unmeasured:  unmeasured.Document{Version: unmeasured.Version, Hostnames: []string{"web.example.org"}},
		Measurement: measured.Measurement{Service: "cloister", Host: measured.Host{TEE: "None"}},
	}
}

// spec: 28.3
func TestSpec(t *testing.T) {
	if err := valid().Validate(); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*Spec){
		"version":                  func(d *Spec) { d.Version = 1 },
		"socketDirectory":          func(d *Spec) { d.SocketDirectory = "reports" },
		"directory":                func(d *Spec) { d.Directory = "/a/../b" },
		"serviceDirectory":         func(d *Spec) { d.ServiceDirectory = "" },
		"config":                   func(d *Spec) { d.Config = "" },
		"terminationFile":          func(d *Spec) { d.TerminationFile = "" },
		"keeperSocket":             func(d *Spec) { d.FDStoreSocket = "x" },
		"metrics.tokenFile":        func(d *Spec) { d.Metrics.TokenFile = "x" },
		"metrics: cpus":            func(d *Spec) { d.Metrics.CPUs = 0 },
		"shim":                     func(d *Spec) { d.Shim = netip.AddrPort{} },
		"gateSocket":               func(d *Spec) { d.GateSocket = "x" },
		"bodiesSocket":             func(d *Spec) { d.BodiesSocket = "x" },
		"probes":                   func(d *Spec) { d.Probes = netip.AddrPort{} },
		"checkEveryMillis":         func(d *Spec) { d.Containers[0].CheckEveryMillis = 0 },
		"containers: 0":            func(d *Spec) { d.Containers = nil },
		"containers[1].name":       func(d *Spec) { d.Containers[1].Name = "web" },
		"containers[0].restart":    func(d *Spec) { d.Containers[0].Restart = "sometimes" },
		"healthWithinMillis":       func(d *Spec) { d.Containers[0].HealthWithinMillis = -1 },
		"stages.models: needs":     func(d *Spec) { delete(d.Stages, "models") },
		"stages.shim: needs":       func(d *Spec) { d.Stages["shim"] = Rule{Skipped: "x"} },
		"stages.other: is not":     func(d *Spec) { d.Stages["other"] = Rule{Skipped: "x"} },
		"stages.models: exactly":   func(d *Spec) { d.Stages["models"] = Rule{Skipped: "x", File: "/y"} },
		"stages.network.models":    func(d *Spec) { d.Stages["network"] = Rule{Models: "/y"} },
		"cpu-attestation.evidence": func(d *Spec) { d.Stages[stageCPU] = Rule{Evidence: true} },
		"stages.identity: exactly": func(d *Spec) { d.Stages["identity"] = Rule{} },
		"stages.secrets.launched":  func(d *Spec) { d.Stages["secrets"] = Rule{Launched: []string{"nobody"}} },
	} {
		spec := valid()
		change(&spec)
		if err := spec.Validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func FuzzParseDocument(f *testing.F) {
	data, err := json.Marshal(valid())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"version":2,"shim":"127.0.0.1:1"}`))
	if _, err := strictjson.Parse[Spec](data); err != nil {
		f.Error(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if spec, err := strictjson.Parse[Spec](data); err == nil && spec.Validate() != nil {
			t.Error("an invalid spec was accepted")
		}
	})
}
