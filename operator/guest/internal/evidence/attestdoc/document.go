// Package attestdoc is the attestation document: its fields, how it is read, and the report data that
// binds its parts. The agent of an enclave writes it, verifiers read it; both use this package.
//
// It is pure. docs/measurement.md describes each byte for those who verify with other programs.
package attestdoc

import (
	"crypto/sha256"
	"encoding/hex"
)

// Format is the only format of documents that this release writes and reads.
const Format = "https://cloister.dev/attestation/v3"

// Formats of the processor's evidence.
const (
	// CPUSEVSNP is an attestation report of AMD SEV-SNP: its 1184 bytes.
	CPUSEVSNP = "https://cloister.dev/cpu-evidence/sev-snp/v1"
	// CPUTDX is a quote of a TD of Intel TDX, of version 4 or 5.
	CPUTDX = "https://cloister.dev/cpu-evidence/tdx/v1"
	// CPUNone is a report that nothing signs, for machines without a TEE: only the report data.
	CPUNone = "https://cloister.dev/cpu-evidence/none/v1"
)

// Sizes in bytes.
const (
	NonceSize      = 32
	ReportDataSize = 64
)

// Document is the attestation document that clients get. Every field is required unless it says
// that it may be absent.
type Document struct {
	// Format is Format.
	Format string `json:"format"`
	// Challenge is what the evidence was requested for.
	Challenge Challenge `json:"challenge"`
	// CPU is the processor's evidence.
	CPU CPUEvidence `json:"cpu_evidence"`
	// CryptoMaterial is base64 of the canonical JSON of a CryptoMaterial.
	CryptoMaterial string `json:"crypto_material"`
	// Measurement is the measurement document, in its canonical form.
	Measurement string `json:"measurement"`
	// Initdata is base64 of gzip of the initdata; absent where none is measured.
	Initdata string `json:"initdata,omitempty"`
	// DeviceEvidence is base64 of gzip of the evidence of the GPUs; absent where there is none.
	DeviceEvidence string `json:"device_evidence,omitempty"`
	// Collateral is what the vendors publish of the processor, signed by them; it may be empty.
	Collateral []Collateral `json:"collateral"`
}

// Challenge is what evidence is requested for.
type Challenge struct {
	// Nonce is the client's nonce in 64 lower-case hexadecimal digits; absent where none was given.
	Nonce string `json:"nonce,omitempty"`
	// ReportData is what the evidence must bind, in 128 lower-case hexadecimal digits.
	ReportData string `json:"report_data"`
	// Algorithm is ReportDataAlgorithm.
	Algorithm string `json:"report_data_algorithm"`
}

// CPUEvidence is evidence of the processor.
type CPUEvidence struct {
	// Format is one of the CPU constants.
	Format string `json:"format"`
	// Report is base64 of the evidence as the processor made it.
	Report string `json:"report_base64"`
	// Endorsed are the digests from which the report data is computed.
	Endorsed Endorsed `json:"endorsed"`
}

// Endorsed has digests of parts of the document: SHA-256 in lower-case hexadecimal digits.
type Endorsed struct {
	// CryptoMaterial is that of the decoded crypto material.
	CryptoMaterial string `json:"crypto_material"`
	// Measurement is that of the measurement's text.
	Measurement string `json:"measurement"`
	// DeviceEvidence is that of the unpacked device evidence; of no bytes where there is none.
	DeviceEvidence string `json:"device_evidence"`
}

// CryptoMaterial names the keys that exist only inside the enclave.
type CryptoMaterial struct {
	// HPKEX25519 is the public key for encrypted bodies, 32 bytes; absent where there is none.
	HPKEX25519 string `json:"hpke_x25519,omitempty"`
	// TLSSPKI is the SHA-256 of the SubjectPublicKeyInfo of the TLS key.
	TLSSPKI string `json:"tls_spki_sha256"`
}

// EndorsedOf returns the digests of the parts of a document; no device evidence is nil.
func EndorsedOf(cryptoMaterial, measurement, deviceEvidence []byte) Endorsed {
	return Endorsed{CryptoMaterial: digestOf(cryptoMaterial), Measurement: digestOf(measurement), DeviceEvidence: digestOf(deviceEvidence)}
}

func digestOf(part []byte) string {
	digest := sha256.Sum256(part)
	return hex.EncodeToString(digest[:])
}
