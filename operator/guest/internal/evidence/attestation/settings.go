// Package attestation proves to clients what an enclave is and that the TLS key is its own.
//
// With a TEE, evidence comes from the attestation service of the confidential machine: the
// REST server of the guest components (`GET /aa/evidence`). The package signs nothing and
// on its own claims nothing: a report that the processor did not sign is called a dummy.
// docs/measurement.md describes how to verify each byte.
package attestation

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"strings"
)

// Kinds of machines that an enclave runs in.
const (
	TEENone = "None"
	TEESNP  = "SNP"
	TEETDX  = "TDX"
)

// initdataAlgorithms are the algorithms whose digests have the length of the processor's field.
var initdataAlgorithms = map[string]string{TEESNP: "sha256", TEETDX: "sha384"}

// Settings is what evidence is about, and where it is from.
type Settings struct {
	// TEE is None, SNP or TDX.
	TEE string
	// Name is the service name of the installation.
	Name string
	// Service is the attestation service: http://127.0.0.1:PORT, or unix:// and the path
	// of a socket. Empty without a TEE.
	Service string
	// Measurement is the measurement document, in its canonical form.
	Measurement []byte
	// Initdata is what the processor reports the digest of; nil means that the machine is the node,
	// which is measured without the enclave.
	Initdata []byte
	// Key is the file with the fingerprint of the enclave's TLS key, which `guest certificate`
	// writes: the SHA-256 of its SubjectPublicKeyInfo in hexadecimal digits. Empty means that
	// the shim makes its keys itself, and that a handshake with it shows them.
	Key string
	// Shim is the shim's address, and Hostnames are the names that it serves; only without Key.
	Shim      netip.AddrPort
	Hostnames []string
	// HPKE is the file with the public key for encrypted bodies in hexadecimal digits; empty means that
	// the enclave has none.
	HPKE string
	// Collateral is the file with what the vendors publish of the processor; it may be missing. Empty
	// means that there is never one.
	Collateral string
	// GPUs is the number of GPUs of the enclave.
	GPUs int
}

// Validate returns an error that names every invalid field.
func (s Settings) Validate() error {
	var problems []error
	wrong := func(field, format string, values ...any) {
		problems = append(problems, fmt.Errorf("attestation."+field+": "+format, values...))
	}
	if s.TEE != TEENone && initdataAlgorithms[s.TEE] == "" {
		wrong("tee", "%q is not one of None, SNP and TDX", s.TEE)
	}
	if err := CheckService(s.TEE, s.Service); err != nil {
		wrong("service", "%v", err)
	}
	if s.Initdata != nil && initdataAlgorithms[s.TEE] == "" {
		wrong("initdata", "nothing measures it without a TEE")
	}
	for field, value := range map[string]string{"key": s.Key, "hpke": s.HPKE, "collateral": s.Collateral} {
		if value != "" && !isCleanPath(value) {
			wrong(field, "%q is not an absolute, clean path", value)
		}
	}
	if s.Key == "" && !s.Shim.IsValid() {
		wrong("key", "without it, the shim's address is needed")
	}
	if s.GPUs < 0 {
		wrong("gpus", "%d, at least 0", s.GPUs)
	}
	return errors.Join(problems...)
}

// CheckService returns an error unless the address can be that of the attestation service of a machine.
func CheckService(tee, service string) error {
	if tee == TEENone {
		if service != "" {
			return errors.New("must be empty without a TEE")
		}
		return nil
	}
	if socket, found := strings.CutPrefix(service, "unix://"); found {
		if !isCleanPath(socket) {
			return fmt.Errorf("%q is not an absolute, clean path of a socket", socket)
		}
		return nil
	}
	address, err := url.Parse(service)
	if err != nil || address.Scheme != "http" || address.Hostname() != "127.0.0.1" || address.Port() == "" ||
		service != "http://"+address.Host {
		return fmt.Errorf("%q is neither http://127.0.0.1:PORT nor unix:// with a path", service)
	}
	return nil
}

func isCleanPath(value string) bool { return path.IsAbs(value) && path.Clean(value) == value }
