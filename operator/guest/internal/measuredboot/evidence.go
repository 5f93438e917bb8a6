// Package measuredboot makes evidence of a measured boot: a quote of the machine's TPM 2.0
// over what the firmware measured until the kernel ran, with the log of these measurements.
//
// Whoever runs a virtual machine owns its TPM. Such evidence shows that the chain from firmware to
// measurement document works, and keeps nobody out: it is never confidential.
package measuredboot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"cloister.dev/guest/internal/strictjson"
)

// digestSize is the size of a SHA-256 in bytes.
const digestSize = sha256.Size

// Registers is the number of registers that are quoted: PCR 0 to 9, which firmware and the kernel's EFI
// stub write, of the bank of SHA-256. What runs later can extend others only.
const Registers = 10

// Evidence is one quote, and what is needed to verify it.
type Evidence struct {
	// Certificate is the certificate of the key that signs, DER.
	Certificate []byte `json:"certificate"`
	// EventLog is the firmware's log, in the TCG's format.
	EventLog []byte `json:"event_log"`
	// Quote is the TPMS_ATTEST, and Signature the TPMT_SIGNATURE of its bytes.
	Quote     []byte `json:"quote"`
	Signature []byte `json:"signature"`
	// Registers are PCR 0 to 9 in lower-case hexadecimal digits; the quote has their digest.
	Registers []string `json:"registers"`
}

// Bytes returns evidence as an attestation document carries it.
func (e Evidence) Bytes() []byte {
	text, _ := json.Marshal(e) // strings and bytes
	return text
}

// Parse reads evidence strictly.
func Parse(text []byte) (Evidence, error) {
	read, err := strictjson.DecodeExact[Evidence](text)
	if err != nil {
		return Evidence{}, err
	}
	_, err = read.Values()
	return read, err
}

// Values returns the bytes of the registers.
func (e Evidence) Values() ([][]byte, error) {
	if len(e.Registers) != Registers {
		return nil, fmt.Errorf("registers: %d instead of %d", len(e.Registers), Registers)
	}
	values := make([][]byte, Registers)
	for index, text := range e.Registers {
		value, err := ReadDigest(text)
		if err != nil {
			return nil, fmt.Errorf("registers[%d]: %w", index, err)
		}
		values[index] = value
	}
	return values, nil
}

// ReadDigest reads a SHA-256 in its only form.
func ReadDigest(text string) ([]byte, error) {
	value, err := hex.DecodeString(text)
	if err != nil || len(value) != digestSize || hex.EncodeToString(value) != text {
		return nil, fmt.Errorf("%.80q is not %d lower-case hexadecimal digits", text, 2*digestSize)
	}
	return value, nil
}
