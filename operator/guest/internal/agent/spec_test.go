package agent

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"cloister.dev/guest/internal/attestation"
)

func valid() Document {
	stages := map[string]Rule{}
	for _, name := range stageOrder {
		stages[name] = Rule{Skipped: "not here"}
	}
	for _, name := range ownStages {
		delete(stages, name)
	}
	return Document{
		Version: Version, Service: "cloister", SocketDirectory: "/reports", Directory: "/agent", ServiceDirectory: "/service",
		Config: Config{Source: "/config/config.yml", Digest: "sha256:" + strings.Repeat("0", 64)}, TerminationFile: "/dev/termination-log",
		Shim: netip.MustParseAddrPort("127.0.0.1:8443"), Stages: stages,
		Containers: []Container{{Name: "web", Image: "web@sha256:0", Restart: restartAlways, HealthWithinMillis: 60_000}, {Name: "job", Restart: restartNo}},
		Metrics:    Metrics{CPUs: 2, MemoryBytes: 1},
	}
}

func TestDocument(t *testing.T) {
	if err := valid().Validate(); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*Document){
		"version":                  func(d *Document) { d.Version = 2 },
		"service":                  func(d *Document) { d.Service = "A/b" },
		"socketDirectory":          func(d *Document) { d.SocketDirectory = "reports" },
		"directory":                func(d *Document) { d.Directory = "/a/../b" },
		"serviceDirectory":         func(d *Document) { d.ServiceDirectory = "" },
		"config.source":            func(d *Document) { d.Config.Source = "" },
		"config.digest":            func(d *Document) { d.Config.Digest = "sha256:00" },
		"terminationFile":          func(d *Document) { d.TerminationFile = "" },
		"keeperSocket":             func(d *Document) { d.KeeperSocket = "x" },
		"metrics.tokenFile":        func(d *Document) { d.Metrics.TokenFile = "x" },
		"metrics: cpus":            func(d *Document) { d.Metrics.CPUs = 0 },
		"shim":                     func(d *Document) { d.Shim = netip.AddrPort{} },
		"containers: 0":            func(d *Document) { d.Containers = nil },
		"containers[1].name":       func(d *Document) { d.Containers[1].Name = "web" },
		"containers[0].restart":    func(d *Document) { d.Containers[0].Restart = "sometimes" },
		"healthWithinMillis":       func(d *Document) { d.Containers[0].HealthWithinMillis = -1 },
		"stages.models: needs":     func(d *Document) { delete(d.Stages, "models") },
		"stages.shim: needs":       func(d *Document) { d.Stages["shim"] = Rule{Skipped: "x"} },
		"stages.other: is no":      func(d *Document) { d.Stages["other"] = Rule{Skipped: "x"} },
		"stages.models: exactly":   func(d *Document) { d.Stages["models"] = Rule{Skipped: "x", File: "/y"} },
		"stages.network.models":    func(d *Document) { d.Stages["network"] = Rule{Models: "/y"} },
		"cpu-attestation.evidence": func(d *Document) { d.Stages[stageCPU] = Rule{Evidence: true} },
		"attestation.tee":          func(d *Document) { d.Attestation = &attestation.Settings{} },
		"stages.identity: exactly": func(d *Document) { d.Stages["identity"] = Rule{} },
		"stages.secrets.launched":  func(d *Document) { d.Stages["secrets"] = Rule{Launched: []string{"nobody"}} },
	} {
		document := valid()
		change(&document)
		if err := document.Validate(); err == nil || !strings.Contains(err.Error(), field) {
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
	f.Add([]byte(`{"version":1,"shim":"127.0.0.1:1"}`))
	if _, err := ParseDocument(data); err != nil {
		f.Error(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if document, err := ParseDocument(data); err == nil && document.Validate() != nil {
			t.Error("read what is not valid")
		}
	})
}
