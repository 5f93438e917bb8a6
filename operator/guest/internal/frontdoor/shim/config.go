package shim

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"cloister.dev/guest/internal/foundation/measured"
	"cloister.dev/guest/internal/foundation/pattern"
)

// Version is the version of the configuration that this shim reads.
const Version = 3

var servicePattern = pattern.Lazy(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)

// Config is the configuration of the shim.
type Config struct {
	// Version is Version.
	Version int `json:"version"`
	// Listen are the addresses that it listens on, as Caddy writes them.
	Listen []string `json:"listen"`
	// HeaderTimeoutMillis is how long a client may take for its headers.
	HeaderTimeoutMillis int `json:"headerTimeoutMillis"`
	// Data is the directory of the authority of its own.
	Data string `json:"data"`
	// Store is the storage that `guest certificate` fills; left out where the shim signs its
	// certificate by an authority of its own.
	Store string `json:"store,omitempty"`
	// Service is part of the well-known paths.
	Service string `json:"service"`
	// Agent is the agent's directory, with its socket and the mark of a completed boot.
	Agent string `json:"agent"`
	// Upstream is the address of the container that requests go to.
	Upstream netip.AddrPort `json:"upstream"`
	// Paths are the rules of the paths that can be reached; allPaths alone is every path.
	Paths []string `json:"paths"`
	// Origins are the allowed origins; left out means all, and so does anyOrigin.
	Origins *[]string `json:"origins,omitempty"`
	// Gate is the part that is asked before some or all requests; left out without one.
	Gate *Gate `json:"gate,omitempty"`
	// Bodies is the part that decrypts bodies; left out without one.
	Bodies *Bodies `json:"bodies,omitempty"`
	// HostKey is the file of the SSH server's public key, in debug enclaves only.
	HostKey string `json:"hostKey,omitempty"`
}

// Gate is when `guest gate` is asked.
type Gate struct {
	// Socket is its socket.
	Socket string `json:"socket"`
	// Keyed are the rules of the paths that need a key.
	Keyed []string `json:"keyed"`
	// Rate means that requests to other paths are counted.
	Rate bool `json:"rate"`
}

// Bodies is when `guest ehbp` gets a request.
type Bodies struct {
	// Socket is its socket.
	Socket string `json:"socket"`
	// Required means that it gets all requests, else those with encrypted bodies.
	Required bool `json:"required"`
}

// ReadConfig reads and validates the measured configuration at a path.
func ReadConfig(path string) (Config, error) { return measured.Read[Config](path) }

// Validate returns an error that names every invalid field.
func (c Config) Validate() error {
	var problems []error
	wrong := func(condition bool, format string, values ...any) {
		if condition {
			problems = append(problems, fmt.Errorf(format, values...))
		}
	}
	absolute := func(field, value string) {
		wrong(!path.IsAbs(value), "%s: %q is not absolute", field, value)
	}
	rules := func(field string, values []string) {
		for index, rule := range values {
			wrong(!strings.HasPrefix(rule, "/"), "%s[%d]: %q does not begin with /", field, index, rule)
		}
	}
	wrong(c.Version != Version, "version: %d, this shim reads %d; the operator and the shim are of different releases", c.Version, Version)
	wrong(len(c.Listen) == 0, "listen: is empty")
	wrong(c.HeaderTimeoutMillis <= 0, "headerTimeoutMillis: %d is not positive", c.HeaderTimeoutMillis)
	wrong(!servicePattern().MatchString(c.Service), "service: %q is not a name", c.Service)
	wrong(!c.Upstream.IsValid() || c.Upstream.Port() == 0, "upstream: %s is not an address with a port", c.Upstream)
	wrong(len(c.Paths) == 0, "paths: is empty")
	absolute("agent", c.Agent)
	absolute("data", c.Data)
	rules("paths", c.Paths)
	if c.Store != "" {
		absolute("store", c.Store)
	}
	if c.Gate != nil {
		absolute("gate.socket", c.Gate.Socket)
		rules("gate.keyed", c.Gate.Keyed)
		wrong(len(c.Gate.Keyed) == 0 && !c.Gate.Rate, "gate: is never asked")
	}
	if c.Bodies != nil {
		absolute("bodies.socket", c.Bodies.Socket)
	}
	if c.HostKey != "" {
		absolute("hostKey", c.HostKey)
	}
	return errors.Join(problems...)
}

// allows reports whether an origin may send requests.
func (c Config) allows(origin string) bool {
	return c.Origins == nil || slices.Contains(*c.Origins, anyOrigin) || slices.Contains(*c.Origins, origin)
}

const anyOrigin = "*"
