package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"cloister.dev/guest/internal/foundation/measured"
	"cloister.dev/guest/internal/foundation/unmeasured"
)

// Version is the version of the configuration that this guest reads.
const Version = 2

// Config is the configuration of `guest shim`.
type Config struct {
	// Version is Version.
	Version int `json:"version"`
	// Signed means that `guest certificate` has the certificates signed; else Caddy signs them.
	Signed bool `json:"signed"`
	// Caddy is Caddy's configuration, without host names.
	Caddy json.RawMessage `json:"caddy"`
}

// Validate returns an error that names every invalid field.
func (c Config) Validate() error {
	if c.Version != Version {
		return fmt.Errorf("version: %d, this guest reads %d; the operator and the guest are of different releases", c.Version, Version)
	}
	_, err := withHostnames(c.Caddy, nil)
	return err
}

// readConfig reads the measured configuration at a path, and writes the host names into it, which are
// not measured.
func readConfig(path string) (Config, error) {
	config, err := measured.Read[Config](path)
	if err != nil {
		return Config{}, err
	}
	values, err := unmeasured.ReadFor(path)
	if err != nil {
		return Config{}, err
	}
	config.Caddy, err = withHostnames(config.Caddy, values.Hostnames)
	return config, err
}

// withHostnames writes host names into Caddy's configuration: certificates are for these, and a client
// without SNI gets the first one's. Nothing else of it changes, and no name can be more than one.
func withHostnames(caddy []byte, names []string) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(caddy))
	decoder.UseNumber()
	var config map[string]any
	if err := decoder.Decode(&config); err != nil {
		return nil, fmt.Errorf("caddy: %w", err)
	}
	policy, errServer := first(config, "apps", "http", "servers", "shim", "tls_connection_policies")
	certificates, errCertificates := at(config, "apps", "tls", "certificates")
	automation, errAutomation := first(config, "apps", "tls", "automation", "policies")
	if err := errors.Join(errServer, errCertificates, errAutomation); err != nil {
		return nil, err
	}
	if len(names) > 0 {
		policy["default_sni"] = names[0]
		certificates["automate"], automation["subjects"] = names, names
	}
	return json.Marshal(config)
}

// at returns the object at a path of names.
func at(config map[string]any, path ...string) (map[string]any, error) {
	for index, name := range path {
		found, isObject := config[name].(map[string]any)
		if !isObject {
			return nil, fmt.Errorf("caddy: there is no object %v", path[:index+1])
		}
		config = found
	}
	return config, nil
}

// first returns the only object of the list at a path of names.
func first(config map[string]any, path ...string) (map[string]any, error) {
	last := len(path) - 1
	parent, err := at(config, path[:last]...)
	if err != nil {
		return nil, err
	}
	list, _ := parent[path[last]].([]any)
	if len(list) == 1 {
		if object, isObject := list[0].(map[string]any); isObject {
			return object, nil
		}
	}
	return nil, fmt.Errorf("caddy: %v is not a list of one object", path)
}
