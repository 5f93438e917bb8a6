// Package attestation proves to clients what an enclave is and that the TLS key is its own.
//
// With a TEE, evidence comes from the attestation service of the confidential machine: the
// REST server of the guest components (`GET /aa/evidence`). The package signs nothing and
// claims nothing by itself: a report that the processor did not sign is called a dummy.
// docs/measurement.md describes how to verify each byte.
package attestation

import (
	"errors"
	"fmt"
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

// formats are the formats of the attestation document by the machine's kind.
var formats = map[string]string{
	TEENone: "https://cloister.dev/attestation/dummy/v2",
	TEESNP:  "https://cloister.dev/attestation/sev-snp-guest/v2",
	TEETDX:  "https://cloister.dev/attestation/tdx-guest/v2",
}

// initdataAlgorithms are the algorithms whose digests have the length of the processor's field.
var initdataAlgorithms = map[string]string{TEESNP: "sha256", TEETDX: "sha384"}

// Settings is what evidence is about, and where it is from.
type Settings struct {
	// TEE is None, SNP or TDX.
	TEE string
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
	// the shim generates a key that is not known, and none is bound.
	Key string
	// GPUs is the number of GPUs of the enclave.
	GPUs int
}

// Validate returns an error that names every invalid field.
func (s Settings) Validate() error {
	var problems []error
	wrong := func(field, format string, values ...any) {
		problems = append(problems, fmt.Errorf("attestation."+field+": "+format, values...))
	}
	if formats[s.TEE] == "" {
		wrong("tee", "%q is not one of None, SNP and TDX", s.TEE)
	}
	if err := checkService(s.TEE, s.Service); err != nil {
		wrong("service", "%v", err)
	}
	if s.Initdata != nil && initdataAlgorithms[s.TEE] == "" {
		wrong("initdata", "nothing measures it without a TEE")
	}
	if s.Key != "" && !isCleanPath(s.Key) {
		wrong("key", "%q is not an absolute, clean path", s.Key)
	}
	if s.GPUs < 0 {
		wrong("gpus", "%d, at least 0", s.GPUs)
	}
	return errors.Join(problems...)
}

func checkService(tee, service string) error {
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
