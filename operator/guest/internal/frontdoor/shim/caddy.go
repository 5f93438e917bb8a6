package shim

import (
	"encoding/json"

	"github.com/caddyserver/caddy/v2"

	// The modules of Caddy that the shim uses.
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/caddyserver/caddy/v2/modules/caddypki"
	_ "github.com/caddyserver/caddy/v2/modules/caddytls"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
	_ "github.com/caddyserver/caddy/v2/modules/logging"
)

const (
	// nobody is an issuer that cannot be reached (RFC 6761): Caddy never obtains a certificate itself.
	// Its folder in the storage is where `guest certificate` writes.
	nobody = "https://certificate.invalid/directory"
	// renewEvery is the time between two checks for certificates that expire soon.
	renewEvery = "10s"
	// renewalWindow is the remaining part of a certificate's lifetime in which the storage is checked.
	// `guest certificate` renews when a third is left.
	renewalWindow = 0.3
)

// caddyConfig returns Caddy's configuration: one server with one handler, no administration endpoint,
// nothing stored but keys. Certificates are for the host names, and a client without SNI gets the first
// one's.
func caddyConfig(config Config, hostnames []string) ([]byte, error) {
	module, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	var served map[string]any
	if err := json.Unmarshal(module, &served); err != nil {
		return nil, err
	}
	served["handler"] = moduleName
	policy := object{}
	if len(hostnames) > 0 {
		policy["default_sni"] = hostnames[0]
	}
	server := object{
		"listen":                  config.Listen,
		"protocols":               []string{"h1", "h2"},
		"read_header_timeout":     config.HeaderTimeoutMillis * 1_000_000,
		"automatic_https":         object{"disable": true},
		"tls_connection_policies": []object{policy},
		"routes":                  []object{{"handle": []any{served}}},
	}
	// Nothing that a client sent is in the log, which the host of the enclave can read.
	encoder := object{"format": "filter", "wrap": object{"format": "json"}, "fields": object{"request": object{"filter": "delete"}}}
	return json.Marshal(object{
		"admin":   object{"disabled": true, "config": object{"persist": false}},
		"logging": object{"logs": object{"default": object{"encoder": encoder}}},
		"storage": object{"module": "file_system", "root": config.Data},
		"apps": object{
			"http": object{"servers": object{"shim": server}},
			"pki":  object{"certificate_authorities": object{"local": object{"install_trust": false}}},
			"tls":  certificates(config.Store, hostnames),
		},
	})
}

// certificates returns where certificates come from. With a store nothing else is ever served: without its
// certificate no handshake succeeds. Without one, the shim signs by an authority of its own, which no
// client knows.
func certificates(store string, hostnames []string) object {
	automate := object{"automate": hostnames}
	if store == "" {
		policy := object{"subjects": hostnames, "issuers": []object{{"module": "internal"}}}
		return object{"certificates": automate, "automation": object{"policies": []object{policy}}}
	}
	policy := object{
		"subjects":              hostnames,
		"issuers":               []object{{"module": "acme", "ca": nobody}},
		"storage":               object{"module": "file_system", "root": store},
		"renewal_window_ratio":  renewalWindow,
		"disable_ocsp_stapling": true,
	}
	return object{
		"certificates":          automate,
		"automation":            object{"policies": []object{policy}, "renew_interval": renewEvery},
		"disable_storage_check": true,
		"disable_storage_clean": true,
	}
}

// start starts Caddy, which serves until the process is terminated.
func start(config Config, hostnames []string) error {
	text, err := caddyConfig(config, hostnames)
	if err != nil {
		return err
	}
	caddy.TrapSignals()
	return caddy.Load(text, true)
}
