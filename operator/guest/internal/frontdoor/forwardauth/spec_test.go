package forwardauth

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"cloister.dev/guest/internal/foundation/strictjson"
	"cloister.dev/guest/internal/frontdoor/apiclient"
)

func valid() Spec {
	return Spec{
		Version: Version, Socket: "/run/gate.sock",
		Keys: &KeyCheck{
			API:    apiclient.Address{URL: "https://api.example.com", ConnectTo: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
			Domain: "web.example.com", CacheSeconds: 1, OutageSeconds: 30,
		},
		Rate: &RateLimit{PerSecond: 2.5, Burst: 5},
	}
}

func TestValidate(t *testing.T) {
	if err := valid().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Spec){
		"version:":                     func(d *Spec) { d.Version = 1 },
		"socket:":                      func(d *Spec) { d.Socket = "gate.sock" },
		"keys, rate:":                  func(d *Spec) { d.Keys, d.Rate = nil, nil },
		"keys.api.url:":                func(d *Spec) { d.Keys.API.URL = "api.example.com" },
		"keys.api.caFile:":             func(d *Spec) { d.Keys.API.URL, d.Keys.API.CAFile = "http://192.0.2.1", "/ca.crt" },
		"keys.cacheSeconds:":           func(d *Spec) { d.Keys.CacheSeconds = 61 },
		"keys.outageSeconds:":          func(d *Spec) { d.Keys.OutageSeconds = -1 },
		"rate.perSecond:":              func(d *Spec) { d.Rate.PerSecond = 0 },
		"rate.burst: 0 is not":         func(d *Spec) { d.Rate.Burst = 0 },
		"rate.perSecond: -1 is not ab": func(d *Spec) { d.Rate.PerSecond = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			spec := valid()
			change(&spec)
			if err := spec.Validate(); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	whole, err := json.Marshal(valid())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"version":2,"socket":"/s","rate":{"perSecond":1e-320,"burst":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, err := strictjson.Parse[Spec](data)
		if err != nil {
			return
		}
		again, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := strictjson.Parse[Spec](again); err != nil {
			t.Errorf("%s does not read again: %v", again, err)
		}
	})
}
