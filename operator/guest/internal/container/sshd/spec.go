// Package sshd is `guest ssh`, the SSH server of a debug enclave: an unprivileged sidecar
// that lets the owners of some public keys start programs in the containers. It starts
// nothing itself; process 1 of each container does.
//
// The login name is the name of the container. Only sessions are served: forwarding of
// ports, agents or displays would bypass the enclave's networks.
package sshd

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/crypto/ssh"

	"cloister.dev/guest/internal/foundation/measured"
	"cloister.dev/guest/internal/foundation/pattern"
	"cloister.dev/guest/internal/foundation/unmeasured"
)

// Version is the version of the spec that this guest reads.
const Version = 2

// maxKeys and maxContainers are the limits of a Container and of a configuration file.
const (
	maxKeys       = 64
	maxContainers = 64
	minRSABits    = 2048
)

// Spec is the configuration of `guest ssh`. It contains no secret.
type Spec struct {
	// Version is Version.
	Version int `json:"version"`
	// Port is the TCP port of the Pod to listen on; 1 to 65535.
	Port uint16 `json:"port"`
	// HostKeyFile contains the private host key, in a memory volume of this sidecar only,
	// over its restarts; it is generated if it is absent.
	HostKeyFile string `json:"hostKeyFile"`
	// PublicKeyFile is where the public host key is written for the shim, one line as in known_hosts.
	PublicKeyFile string `json:"publicKeyFile"`
	// Containers are the containers that can be logged in to.
	Containers []Target `json:"containers"`

	// Keys are the public keys that may log in; they are not measured.
	Keys []unmeasured.SSHKey `json:"-"`
}

// Target is a container in which sessions are started.
type Target struct {
	// Name is the container's name in the configuration file and the login name.
	Name string `json:"name"`
	// Socket is the path of its shell socket.
	Socket string `json:"socket"`
}

var (
	keyNamePattern   = pattern.Lazy(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	containerPattern = pattern.Lazy(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}$`)
)

// ReadSpec reads and validates the measured spec at a path, and completes it with the keys, which are
// not measured.
func ReadSpec(path string) (Spec, error) {
	spec, err := measured.Read[Spec](path)
	if err != nil {
		return Spec{}, err
	}
	values, err := unmeasured.ReadFor(path)
	if err != nil {
		return Spec{}, err
	}
	spec.Keys = values.SSHKeys
	if err := validateKeys(spec.Keys); err != nil {
		return Spec{}, fmt.Errorf("%s: %w", unmeasured.FileName, err)
	}
	return spec, nil
}

func validateKeys(keys []unmeasured.SSHKey) error {
	var problems []error
	add := func(condition bool, format string, values ...any) {
		if condition {
			problems = append(problems, fmt.Errorf(format, values...))
		}
	}
	add(len(keys) == 0 || len(keys) > maxKeys, "sshKeys: 1 to %d", maxKeys)
	for index, key := range keys {
		add(!keyNamePattern().MatchString(key.Name), "sshKeys[%d].name: %q is not an object name", index, key.Name)
		if _, err := parseKey(key.PublicKey); err != nil {
			add(true, "sshKeys[%d].publicKey (%s): %w", index, key.Name, err)
		}
	}
	return errors.Join(problems...)
}

// Validate returns an error that names every invalid field.
func (d Spec) Validate() error {
	var problems []error
	add := func(condition bool, format string, values ...any) {
		if condition {
			problems = append(problems, fmt.Errorf(format, values...))
		}
	}
	add(d.Version != Version, "version: %d, this guest reads %d; the operator and the guest are of different releases", d.Version, Version)
	add(d.Port == 0, "port: 0 is not a port")
	for field, file := range map[string]string{"hostKeyFile": d.HostKeyFile, "publicKeyFile": d.PublicKeyFile} {
		add(!path.IsAbs(file), "%s: %q is not absolute", field, file)
	}
	add(len(d.Containers) == 0 || len(d.Containers) > maxContainers, "containers: 1 to %d", maxContainers)
	names := map[string]bool{}
	for index, container := range d.Containers {
		add(!containerPattern().MatchString(container.Name) || names[container.Name], "containers[%d].name: %q is not a unique name", index, container.Name)
		add(!path.IsAbs(container.Socket), "containers[%d].socket: %q is not absolute", index, container.Socket)
		names[container.Name] = true
	}
	return errors.Join(problems...)
}

// parseKey parses one line of an OpenSSH public key file.
func parseKey(text string) (ssh.PublicKey, error) {
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil {
		return nil, err
	}
	if len(options) > 0 || len(rest) > 0 {
		return nil, errors.New("more than a type, a key and a comment")
	}
	if bits := rsaBits(key); bits > 0 && bits < minRSABits {
		return nil, fmt.Errorf("an RSA key of %d bits; at least %d are needed", bits, minRSABits)
	}
	return key, nil
}
