// Package ehbp is `guest ehbp`: it decrypts the bodies of requests and encrypts those of their
// responses, by the Encrypted HTTP Body Protocol.
//
// The shim ends TLS and applies every rule of the configuration file; then it passes a request over
// a Unix socket to this part, which passes it on to the container. The key for bodies is made here and
// never leaves: any other party that ends TLS on the way of a request reads its headers, but not its body.
package ehbp

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"path/filepath"

	"cloister.dev/guest/internal/foundation/measured"
)

// Version is the version of the spec that this guest reads.
const Version = 1

// Names of files.
const (
	// socketFile is the socket on which the shim is served.
	socketFile = "ehbp.sock"
	// publicKeyFile is the public key: 32 bytes in lower-case hexadecimal digits, one line.
	publicKeyFile = "hpke.pub"
	// privateKeyFile is the private key, 32 bytes.
	privateKeyFile = "hpke.key"
)

// Spec is the configuration of `guest ehbp`.
type Spec struct {
	// Version is Version.
	Version int `json:"version"`
	// Directory is the directory of the socket and the public key; the shim and the agent read it.
	Directory string `json:"directory"`
	// KeyDirectory is the directory of the private key, in memory. No other container has it.
	KeyDirectory string `json:"keyDirectory"`
	// Upstream is the address of the container that requests go to.
	Upstream netip.AddrPort `json:"upstream"`
	// Required means that requests with unencrypted bodies are refused.
	Required bool `json:"required"`
}

// ReadSpec reads and validates the measured spec at a path.
func ReadSpec(path string) (Spec, error) { return measured.Read[Spec](path) }

// Validate returns an error that names every invalid field.
func (d Spec) Validate() error {
	var problems []error
	add := func(condition bool, format string, values ...any) {
		if condition {
			problems = append(problems, fmt.Errorf(format, values...))
		}
	}
	add(d.Version != Version, "version: %d, this guest reads %d; the operator and the guest are of different releases", d.Version, Version)
	add(!path.IsAbs(d.Directory), "directory: %q is not absolute", d.Directory)
	add(!path.IsAbs(d.KeyDirectory), "keyDirectory: %q is not absolute", d.KeyDirectory)
	add(path.Clean(d.Directory) == path.Clean(d.KeyDirectory), "keyDirectory: must differ from directory, which others read")
	add(!d.Upstream.IsValid() || d.Upstream.Port() == 0, "upstream: %s is not an address with a port", d.Upstream)
	return errors.Join(problems...)
}

func (d Spec) socket() string { return filepath.Join(d.Directory, socketFile) }
