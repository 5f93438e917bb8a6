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
	"strings"

	"cloister.dev/guest/internal/evidence/collateral"
	"cloister.dev/guest/internal/foundation/measured"
	"cloister.dev/guest/internal/foundation/unmeasured"
	"cloister.dev/guest/internal/frontdoor/apiclient"
)

// Version is the version of the spec that this guest reads.
const Version = 2

const maxToken = 8192

// Spec is the configuration of `guest certificate`, written by the operator.
type Spec struct {
	// Version is Version.
	Version int `json:"version"`
	// API is the address of the API.
	API apiclient.Address `json:"api"`
	// TokenFile contains the enclave's token. The kubelet replaces it, so it is read for each request.
	TokenFile string `json:"tokenFile"`
	// Directory is the directory of key and certificate, in memory.
	Directory string `json:"directory"`
	// ShimStore is where the shim finds the files of each name (NAME/NAME.crt, .key and
	// .json), within Directory; empty means none.
	ShimStore string `json:"shimStore,omitempty"`
	// TerminationFile is where the kubelet reads the termination message; empty means none.
	TerminationFile string `json:"terminationFile,omitempty"`
	// PatienceSeconds is how long there may be no certificate until the sidecar exits to show the reason; 0 means 20.
	PatienceSeconds int `json:"patienceSeconds,omitempty"`
	// Collateral is where the machine's evidence is, for which collateral is kept; nil without a TEE.
	Collateral *collateral.Spec `json:"collateral,omitempty"`

	// Hostnames are the host names of the certificate, the public one first; they are not measured.
	Hostnames []string `json:"-"`
}

// ReadSpec reads and validates the measured spec at a path, and completes it with what is not
// measured.
func ReadSpec(path string) (Spec, error) {
	spec, err := measured.Read[Spec](path)
	if err != nil {
		return Spec{}, err
	}
	values, err := unmeasured.ReadFor(path)
	if err != nil {
		return Spec{}, err
	}
	if len(values.Hostnames) == 0 {
		return Spec{}, errors.New(unmeasured.FileName + ": hostnames: at least one is needed for a certificate")
	}
	spec.Hostnames = values.Hostnames
	spec.API, err = spec.API.Complete(values.Cluster.API)
	return spec, err
}

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
	add(d.ShimStore != "" && !strings.HasPrefix(path.Clean(d.ShimStore), path.Clean(d.Directory)+"/"), "shimStore: must be in directory")
	add(d.TerminationFile != "" && !path.IsAbs(d.TerminationFile), "terminationFile: needs an absolute path")
	if d.Collateral != nil {
		if err := d.Collateral.Validate(); err != nil {
			add(true, "collateral.%w", err)
		}
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
