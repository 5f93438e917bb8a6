// Package bundle is the file that holds everything by which an enclave was verified, so that others
// can verify it again without network.
package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/foundation/strictjson"
)

// Format is the only format of bundles that this release writes and reads.
const Format = "https://cloister.dev/verification-bundle/v1"

// maxFile is the largest bundle that is read, in bytes.
const maxFile = 8 << 20

// Bundle is one verification. Nothing in it must be trusted unless its comment states it: certificates,
// evidence and collateral are signed, and the verifier computes the rest again.
type Bundle struct {
	// Format is Format.
	Format string `json:"format"`
	// Time is when the enclave was verified. It decides which certificates were valid; the bundle's
	// author chose it.
	Time time.Time `json:"time"`
	// Host and Service are what was connected to.
	Host    string `json:"host"`
	Service string `json:"service"`
	// Certificate is the certificate of the connection, DER.
	Certificate []byte `json:"certificate"`
	// Nonce is the nonce that was sent, in hexadecimal digits.
	Nonce string `json:"nonce"`
	// Document is the attestation document, byte for byte.
	Document []byte `json:"document"`
	// Source is where the configuration file is from; absent for a file that the verifier had.
	Source *Source `json:"source,omitempty"`
	// ConfigFile is the configuration file; absent where only its measurement was given.
	ConfigFile []byte `json:"config_file,omitempty"`
	// HostProfile is the Host's manifest; absent where it was taken from the operator's word.
	HostProfile []byte `json:"host_profile,omitempty"`
	// Documents are the enclave's documents by name; absent like HostProfile.
	Documents map[string]string `json:"documents,omitempty"`
	// Downloads are the responses of the processor's vendor, in the order of the requests.
	Downloads []Download `json:"downloads,omitempty"`
}

// Source is the release that a configuration file is from, on the word of the bundle's author.
type Source struct {
	Repo     string `json:"repo"`
	Tag      string `json:"tag"`
	Commit   string `json:"commit"`
	FileName string `json:"file_name"`
}

// Download is a response of a processor's vendor.
type Download struct {
	Address string              `json:"address"`
	Header  map[string][]string `json:"header,omitempty"`
	Body    []byte              `json:"body"`
}

// Write writes a bundle to a file, which is there as a whole or not at all.
func (b Bundle) Write(path string) error {
	b.Format = Format
	text, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		return err
	}
	partial := path + ".partial"
	if err := os.WriteFile(partial, append(text, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.Rename(partial, path); err != nil {
		_ = os.Remove(partial)
		return err
	}
	return nil
}

// Read reads a bundle from a file.
func Read(path string) (Bundle, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Bundle{}, err
	}
	if info.Size() > maxFile {
		return Bundle{}, fmt.Errorf("%d bytes; a bundle has at most %d", info.Size(), maxFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Bundle{}, err
	}
	read, err := strictjson.DecodeUpTo[Bundle](text, maxFile)
	if err != nil {
		return Bundle{}, err
	}
	return read, read.check()
}

func (b Bundle) check() error {
	switch {
	case b.Format != Format:
		return fmt.Errorf("format: %q is not %s", b.Format, Format)
	case b.Time.IsZero():
		return errors.New("time: missing")
	case len(b.Certificate) == 0:
		return errors.New("certificate: missing")
	case len(b.Document) == 0:
		return errors.New("document: missing")
	case len(b.Nonce) != 2*attestdoc.NonceSize:
		return fmt.Errorf("nonce: not %d hexadecimal digits", 2*attestdoc.NonceSize)
	}
	return nil
}

// Recorder keeps what is fetched, so that a bundle can have it and nothing is fetched twice.
type Recorder struct {
	// Fetch fetches what was not fetched before; nil means that nothing is.
	Fetch func(address string) (map[string][]string, []byte, error)
	// Kept are the responses so far.
	Kept []Download
}

// Get returns a response that is kept, or fetches it.
func (r *Recorder) Get(address string) (map[string][]string, []byte, error) {
	for _, each := range r.Kept {
		if each.Address == address {
			return each.Header, each.Body, nil
		}
	}
	if r.Fetch == nil {
		return nil, nil, fmt.Errorf("%s: the bundle does not have it, and nothing is fetched", address)
	}
	header, body, err := r.Fetch(address)
	if err == nil {
		r.Kept = append(r.Kept, Download{Address: address, Header: header, Body: body})
	}
	return header, body, err
}
