// Package commandline is the kernel's command line of a machine with a measured boot: it names the
// measurement document.
package commandline

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"unicode/utf16"
)

// Parameter is the kernel parameter that has the digest of the measurement document, in the form sha256:….
const Parameter = "cloister.measurement"

// Measurement returns the digest that a command line names; empty if it names none, or several.
func Measurement(line string) string {
	found := ""
	for _, word := range strings.Fields(line) {
		value, isNamed := strings.CutPrefix(word, Parameter+"=")
		if isNamed && found != "" {
			return ""
		}
		if isNamed {
			found = value
		}
	}
	return found
}

// Digest returns what the kernel's EFI stub measures of a command line: the SHA-256 of its UTF-16, little
// endian, with the zero at its end.
func Digest(line string) [sha256.Size]byte {
	var text bytes.Buffer
	for _, unit := range utf16.Encode([]rune(line + "\x00")) {
		_ = binary.Write(&text, binary.LittleEndian, unit) // writes to a buffer do not fail
	}
	return sha256.Sum256(text.Bytes())
}
