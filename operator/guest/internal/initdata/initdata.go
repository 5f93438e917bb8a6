// Package initdata reads the document that a confidential machine was started with, and whose
// digest its processor reports (Trustee, kbs/docs/initdata.md).
package initdata

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"

	"github.com/pelletier/go-toml/v2"
)

// MeasurementFile is the name of the file with the measurement document.
const MeasurementFile = "measurement.json"

const version = "0.1.0"

// Document is an initdata document.
type Document struct {
	// Version is the version of the specification.
	Version string `toml:"version"`
	// Algorithm is the hash whose digest the processor reports.
	Algorithm string `toml:"algorithm"`
	// Data maps names of files to their contents.
	Data map[string]string `toml:"data"`
}

// Parse parses a document; an unknown field is an error.
func Parse(text []byte) (Document, error) {
	var read Document
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&read); err != nil {
		return Document{}, fmt.Errorf("it is not initdata: %w", err)
	}
	if read.Version != version {
		return Document{}, fmt.Errorf("it is of version %q, not %s", read.Version, version)
	}
	if _, err := Digest(read.Algorithm, text); err != nil {
		return Document{}, err
	}
	return read, nil
}

// Measurement returns the measurement document.
func (d Document) Measurement() (string, error) {
	text, found := d.Data[MeasurementFile]
	if !found {
		return "", errors.New("it has no " + MeasurementFile)
	}
	return text, nil
}

// Digest returns the digest that the processor reports for a document: that of its exact bytes.
func Digest(algorithm string, text []byte) ([]byte, error) {
	switch algorithm {
	case "sha256":
		digest := sha256.Sum256(text)
		return digest[:], nil
	case "sha384":
		digest := sha512.Sum384(text)
		return digest[:], nil
	}
	return nil, fmt.Errorf("its algorithm is %q, neither sha256 (SNP) nor sha384 (TDX)", algorithm)
}
