// Package initdata reads the document that a confidential machine was started with, and whose
// digest its processor reports (Trustee, kbs/docs/initdata.md).
package initdata

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

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

// Parse parses a document, which must be in the one form that the operator writes. The host chooses the
// text, and the agent of the machine reads it by another library: this one takes a table [Data] for [data],
// that one does not, so that each could be shown rules of its own in one text.
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
	if !bytes.Equal(read.text(), text) {
		return Document{}, errors.New("it is not in the form that the operator writes: others may read other files in it")
	}
	return read, nil
}

// text returns the document as crds/cloister_crds/measurement/initdata.py writes it.
func (d Document) text() []byte {
	var made bytes.Buffer
	fmt.Fprintf(&made, "version = \"%s\"\nalgorithm = \"%s\"\n\n[data]\n", d.Version, d.Algorithm)
	for _, name := range slices.Sorted(maps.Keys(d.Data)) {
		fmt.Fprintf(&made, "%s = %s\n", basic(name), quoted(d.Data[name]))
	}
	return made.Bytes()
}

// quoted returns a string of TOML: as it is, between lines, where TOML allows that.
func quoted(content string) string {
	if strings.Contains(content, "''") || strings.HasSuffix(content, "'") || strings.ContainsFunc(content, isControl) {
		return basic(content)
	}
	return "'''\n" + content + "'''"
}

// isControl reports whether a literal string of TOML cannot have the character.
func isControl(each rune) bool {
	return each < ' ' && each != '\t' && each != '\n' || each == 0x7f
}

// escapes are the characters that a basic string has by names of their own.
var escapes = map[rune]string{
	'"': `\"`, '\\': `\\`, '\b': `\b`, '\t': `\t`, '\n': `\n`, '\f': `\f`, '\r': `\r`,
}

// basic returns a string of TOML with escapes.
func basic(content string) string {
	var made strings.Builder
	made.WriteByte('"')
	for _, each := range content {
		named, found := escapes[each]
		switch {
		case found:
			made.WriteString(named)
		case isControl(each):
			fmt.Fprintf(&made, `\u%04x`, each)
		default:
			made.WriteRune(each)
		}
	}
	return made.String() + `"`
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
