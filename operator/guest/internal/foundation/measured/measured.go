// Package measured reads the documents by which the parts of the guest work, and only those whose
// digests the measurement names.
//
// The host of an enclave carries every document to it and may change each on the way. It cannot
// change the measurement: that is taken from the initdata whose digest the processor reports, by
// package install, before any other part starts.
package measured

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"cloister.dev/guest/internal/foundation/paths"
	"cloister.dev/guest/internal/foundation/pattern"
	"cloister.dev/guest/internal/foundation/strictjson"
)

// root is the guest's directory in every container of the Pod. It is not a flag, since anyone who sets
// flags would choose the measurement; the tests of whole Pods build a guest with another one.
var root = paths.Guest

// Names of files in the guest's directory.
const (
	// FileName is the measurement document that counts.
	FileName = "measurement.json"
	// InitdataName is the initdata that it is from; absent where none is measured.
	InitdataName = "initdata.toml"
	// PublishedName is the directory in which `guest keep` finds both as the host carried them.
	PublishedName = "published"
)

// Version is the version of the measurement document that this guest reads.
const Version = "cloister.dev/measurement/v2"

// Reason is the reason of such a failure, among the operator's documented reasons.
const Reason = "MeasurementMismatch"

// ExitCode is the exit code of a part whose document is not the measured one.
const ExitCode = 67

// ErrNotMeasured is wrapped by the errors of documents that are not the measured ones.
var ErrNotMeasured = errors.New("not what was measured")

var digestPattern = pattern.Lazy(`^sha256:[0-9a-f]{64}$`)

// Measurement is what of a measurement document the guest works by.
type Measurement struct {
	// Version is Version.
	Version string `json:"version"`
	// Service names the service mount and the well-known paths.
	Service string `json:"service"`
	// ConfigDigest is the digest of the configuration file.
	ConfigDigest string `json:"configDigest"`
	// Documents maps the names of documents to their digests.
	Documents map[string]string `json:"documents"`
	// Debug means that people may log in.
	Debug bool `json:"debug"`
	// GPUs is the number of GPUs.
	GPUs int `json:"gpus"`
	// Host is what of the Host counts.
	Host Host `json:"host"`

	text []byte
}

// Host is what of the Host counts.
type Host struct {
	// TEE is None, SNP or TDX.
	TEE string `json:"tee"`
	// TEEUnit is Pod or Node; empty without a TEE.
	TEEUnit string `json:"teeUnit"`
}

// Root returns the guest's directory.
func Root() string { return root }

// Path returns the path of a file in the guest's directory.
func Path(name string) string { return filepath.Join(root, name) }

// Load reads the measurement that counts.
func Load() (Measurement, error) {
	text, err := readBounded(Path(FileName))
	if err != nil {
		return Measurement{}, fmt.Errorf("%w: there is no measurement: %w", ErrNotMeasured, err)
	}
	return Parse(text)
}

// Parse parses a measurement document.
func Parse(text []byte) (Measurement, error) {
	read := Measurement{text: text}
	if err := json.Unmarshal(text, &read); err != nil {
		return Measurement{}, fmt.Errorf("%w: %s: %w", ErrNotMeasured, FileName, err)
	}
	if read.Version != Version {
		return Measurement{}, fmt.Errorf("%w: %s has version %q, this guest reads %s; the operator and the guest are of different releases",
			ErrNotMeasured, FileName, read.Version, Version)
	}
	for name, digest := range read.Documents {
		if !digestPattern().MatchString(digest) {
			return Measurement{}, fmt.Errorf("%w: %s: documents[%q]: %q is not sha256: and 64 hexadecimal digits", ErrNotMeasured, FileName, name, digest)
		}
	}
	return read, nil
}

// HidesOutput returns whether the host may not read what the enclave prints.
func (m Measurement) HidesOutput() bool { return m.Host.TEEUnit == "Pod" && !m.Debug }

// Text returns the exact bytes of the measurement document.
func (m Measurement) Text() []byte { return m.text }

// Digest returns the SHA-256 of the measurement document.
func (m Measurement) Digest() [sha256.Size]byte { return sha256.Sum256(m.text) }

// Check returns an error unless content is the document of that name.
func (m Measurement) Check(name string, content []byte) error {
	return compare(name, m.Documents[name], content)
}

// CheckConfig returns an error unless content is the configuration file.
func (m Measurement) CheckConfig(content []byte) error {
	return compare("the configuration file", m.ConfigDigest, content)
}

func compare(name, named string, content []byte) error {
	found := fmt.Sprintf("sha256:%x", sha256.Sum256(content))
	switch {
	case named == "":
		return fmt.Errorf("%w: %s, which the measurement does not name", ErrNotMeasured, name)
	case named != found:
		return fmt.Errorf("%w: %s has the digest %s instead of %s. It was changed on its way; start the container again, "+
			"and if that repeats, find out who changes it on the node or in the cluster", ErrNotMeasured, name, found, named)
	}
	return nil
}

// ReadFile reads a document, which the measurement names by the last element of its path.
func ReadFile(path string) ([]byte, error) {
	measurement, err := Load()
	if err != nil {
		return nil, err
	}
	content, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	return content, measurement.Check(filepath.Base(path), content)
}

// Read reads, decodes and validates a document as ReadFile does; nothing of another document is
// decoded.
func Read[T strictjson.Validator](path string) (T, error) {
	var zero T
	content, err := ReadFile(path)
	if err != nil {
		return zero, err
	}
	document, err := strictjson.Parse[T](content)
	if err != nil {
		return zero, fmt.Errorf("%s: %w", path, err)
	}
	return document, nil
}

func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, strictjson.MaxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(content) > strictjson.MaxDocument {
		return nil, fmt.Errorf("%s: %w", path, strictjson.ErrTooLarge)
	}
	return content, nil
}
