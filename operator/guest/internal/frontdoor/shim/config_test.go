package shim

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"cloister.dev/guest/internal/foundation/strictjson"
)

// The files are what the operator writes: a unit test of its builder compares them.
func TestTheDocumentOfTheOperatorIsRead(t *testing.T) {
	data := filepath.Join("..", "..", "..", "..", "..", "tests", "data", "measurement")
	for _, kind := range []string{"signed", "self-signed"} {
		config, err := strictjson.Read[Config](filepath.Join(data, "shim-"+kind+".json"))
		if err != nil || (config.Store != "") != (kind == "signed") || config.Gate == nil {
			t.Errorf("%s: %+v %v", kind, config, err)
		}
	}
}

func valid() Config {
	return Config{
		Version: Version, Listen: []string{":8443"}, HeaderTimeoutMillis: 1, Data: "/data", Service: "cloister", Agent: "/agent",
		Upstream: netip.MustParseAddrPort("192.0.2.1:80"), Paths: []string{"/*"},
	}
}

func TestEveryInvalidFieldIsNamed(t *testing.T) {
	if err := valid().Validate(); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*Config){
		"version":             func(c *Config) { c.Version = 2 },
		"listen":              func(c *Config) { c.Listen = nil },
		"headerTimeoutMillis": func(c *Config) { c.HeaderTimeoutMillis = 0 },
		"data":                func(c *Config) { c.Data = "data" },
		"store":               func(c *Config) { c.Store = "store" },
		"service":             func(c *Config) { c.Service = "a/b" },
		"agent":               func(c *Config) { c.Agent = "" },
		"upstream":            func(c *Config) { c.Upstream = netip.AddrPort{} },
		"paths: is empty":     func(c *Config) { c.Paths = nil },
		"paths[0]":            func(c *Config) { c.Paths = []string{"x"} },
		"gate.socket":         func(c *Config) { c.Gate = &Gate{Rate: true} },
		"gate.keyed[0]":       func(c *Config) { c.Gate = &Gate{Socket: "/g", Keyed: []string{"x"}} },
		"gate: is never":      func(c *Config) { c.Gate = &Gate{Socket: "/g"} },
		"bodies.socket":       func(c *Config) { c.Bodies = &Bodies{} },
		"hostKey":             func(c *Config) { c.HostKey = "x" },
	} {
		config := valid()
		change(&config)
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestHeadersThatServersTrustFromAProxy(t *testing.T) {
	for name, trusted := range map[string]bool{
		"Forwarded": true, "X-Forwarded-For": true, "X_forwarded_host": true, "Wl-Proxy-Forwarded": true, "X-Original-Url": true,
		"X_original_url": true, "X-Rewrite-Url": true, "X-Real-Ip": true, "X_real_ip": true, "Cf-Real-Ip-2": true,
		"X-Originals": false, "Own-X-Original-Url": false, "X-Real": false, "Forward": false, "Host": false,
	} {
		if isTrusted(name) != trusted {
			t.Errorf("%s: %t", name, !trusted)
		}
	}
}

func TestTheConfigurationOfCaddyHasOneHandlerAndOneIssuer(t *testing.T) {
	signed := valid()
	signed.Store = "/store"
	text, err := caddyConfig(signed, []string{"web.example", "www.example"})
	if err != nil {
		t.Fatal(err)
	}
	for part, times := range map[string]int{`"handler":`: 1, `"issuers":[{"ca":"https://certificate.invalid/directory","module":"acme"}]`: 1,
		`"module":"internal"`: 0, `"default_sni":"web.example"`: 1} {
		if strings.Count(string(text), part) != times {
			t.Errorf("%s: %s", part, text)
		}
	}
}
