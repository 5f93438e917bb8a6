// Package certificate is `guest certificate`: it generates the enclave's TLS key, has
// certificates for it signed through Cloister's API, and renews them.
//
// The key is generated here, once in the life of a Pod, in a directory in memory that
// only the shim and this sidecar can read. Only a signing request leaves the enclave;
// the chain is checked before the shim sees it.
package certificate

import (
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"

	"cloister.dev/guest/internal/apiclient"
	"cloister.dev/guest/internal/strictjson"
)

// Version is the version of the spec that this guest reads.
const Version = 1

const (
	maxHostnames = 8
	maxToken     = 8192
)

var hostname = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)+$`)

// Spec is the configuration of `guest certificate`, written by the operator.
type Spec struct {
	// Version is Version.
	Version int `json:"version"`
	// API is the address of the API.
	API apiclient.Address `json:"api"`
	// TokenFile contains the enclave's token. The kubelet replaces it, so it is read for each request.
	TokenFile string `json:"tokenFile"`
	// Hostnames are the host names of the certificate, the public one first.
	Hostnames []string `json:"hostnames"`
	// Directory is the directory of key and certificate, in memory.
	Directory string `json:"directory"`
	// ShimStore is where the shim finds the files of each name (NAME/NAME.crt, .key and
	// .json), within Directory; empty means none.
	ShimStore string `json:"shimStore,omitempty"`
	// TerminationFile is where the kubelet reads the termination message; empty means none.
	TerminationFile string `json:"terminationFile,omitempty"`
	// PatienceSeconds is how long there may be no certificate until the sidecar exits to show the reason; 0 means 20.
	PatienceSeconds int `json:"patienceSeconds,omitempty"`
}

// ReadSpec reads and validates the spec at a path.
func ReadSpec(file string) (Spec, error) { return strictjson.Read[Spec](file) }

// Validate returns an error that names every invalid field.
func (d Spec) Validate() error {
	var problems []error
	add := func(condition bool, format string, values ...any) {
		if condition {
			problems = append(problems, fmt.Errorf(format, values...))
		}
	}
	add(d.Version != Version, "version: %d, this guest reads %d", d.Version, Version)
	if err := d.API.Validate(); err != nil {
		add(true, "api.%w", err)
	}
	for name, value := range map[string]string{"tokenFile": d.TokenFile, "directory": d.Directory} {
		add(!path.IsAbs(value), "%s: needs an absolute path", name)
	}
	add(d.ShimStore != "" && !strings.HasPrefix(path.Clean(d.ShimStore), path.Clean(d.Directory)+"/"), "shimStore: must lie in directory")
	add(d.TerminationFile != "" && !path.IsAbs(d.TerminationFile), "terminationFile: needs an absolute path")
	add(len(d.Hostnames) == 0 || len(d.Hostnames) > maxHostnames, "hostnames: %d, needs 1 to %d", len(d.Hostnames), maxHostnames)
	seen := map[string]bool{}
	for index, name := range d.Hostnames {
		add(!hostname.MatchString(name) || len(name) > 253, "hostnames[%d]: %q is not a host name in lower case", index, name)
		add(seen[name], "hostnames[%d]: %q is given twice", index, name)
		seen[name] = true
	}
	add(d.PatienceSeconds < 0, "patienceSeconds: must not be negative")
	return errors.Join(problems...)
}

// token reads the enclave's token.
func (d Spec) token() (string, error) {
	data, err := os.ReadFile(d.TokenFile)
	if err != nil {
		return "", fmt.Errorf("the enclave's token cannot be read: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || len(data) > maxToken {
		return "", fmt.Errorf("%s does not contain a token", d.TokenFile)
	}
	return token, nil
}
