// Package attestation proves to clients what an enclave is and that the TLS key is its own.
//
// With a TEE, evidence comes from the attestation service of the confidential machine: the
// REST server of the guest components (`GET /aa/evidence`). The package signs nothing and
// claims nothing by itself: a report that the processor did not sign is called a dummy.
// docs/measurement.md describes how to verify each byte.
package attestation

import (
	"encoding/hex"
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

// digestLengths maps digest algorithms to their number of hexadecimal digits.
var digestLengths = map[string]int{"sha256": 64, "sha384": 96}

// initdataAlgorithms are the algorithms whose digests have the length of the processor's field.
var initdataAlgorithms = map[string]string{TEESNP: "sha256", TEETDX: "sha384"}

// Settings is the attestation part of the agent's spec.
type Settings struct {
	// TEE is None, SNP or TDX.
	TEE string `json:"tee"`
	// Service is the attestation service: http://127.0.0.1:PORT, or unix:// and the path
	// of a socket. Empty without a TEE.
	Service string `json:"service,omitempty"`
	// Measurement is the measurement document.
	Measurement File `json:"measurement"`
	// Initdata is the file whose digest the processor's field must be; nil means that the
	// machine is the node, which is measured without the enclave.
	Initdata *File `json:"initdata,omitempty"`
	// Key is the file with the fingerprint of the enclave's TLS key, which `guest certificate`
	// writes: the SHA-256 of its SubjectPublicKeyInfo in hexadecimal digits. Empty means that
	// the shim generates a key that is not known, and none is bound.
	Key string `json:"key,omitempty"`
	// GPUs is the number of GPUs of the enclave.
	GPUs int `json:"gpus"`
}

// File is a file with a known digest.
type File struct {
	// Path is its path.
	Path string `json:"path"`
	// Digest is the algorithm, a colon and the hash of its bytes in hexadecimal digits.
	Digest string `json:"digest"`
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
	if err := s.Measurement.check("sha256"); err != nil {
		wrong("measurement", "%v", err)
	}
	if s.Initdata != nil {
		if algorithm := initdataAlgorithms[s.TEE]; algorithm == "" {
			wrong("initdata", "nothing measures it without a TEE")
		} else if err := s.Initdata.check(algorithm); err != nil {
			wrong("initdata", "%v", err)
		}
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

func (f File) check(algorithm string) error {
	name, digits, _ := strings.Cut(f.Digest, ":")
	if _, err := hex.DecodeString(digits); err != nil || name != algorithm || len(digits) != digestLengths[name] {
		return fmt.Errorf("digest %q is not %s: and %d hexadecimal digits", f.Digest, algorithm, digestLengths[algorithm])
	}
	if !isCleanPath(f.Path) {
		return fmt.Errorf("path %q is not absolute and clean", f.Path)
	}
	return nil
}

// hash returns the bytes of the digest; the settings were validated before.
func (f File) hash() []byte {
	_, digits, _ := strings.Cut(f.Digest, ":")
	hash, _ := hex.DecodeString(digits)
	return hash
}

func isCleanPath(value string) bool { return path.IsAbs(value) && path.Clean(value) == value }
