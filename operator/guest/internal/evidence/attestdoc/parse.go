package attestdoc

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"cloister.dev/guest/internal/foundation/strictjson"
)

// MaxDocument is the largest document in bytes.
const MaxDocument = strictjson.MaxDocument

const (
	// maxReport is the largest evidence of a processor: a TD quote with its certificates has 5 to 8 KiB,
	// a TPM's quote with its event log more.
	maxReport         = 256 << 10
	maxCryptoMaterial = 1024
)

var cpuFormats = []string{CPUSEVSNP, CPUTDX, CPUNone}

// Parts are the decoded parts of a document. Each digest of the document is that of its part, and the
// report data is computed from them; only evidence shows that they are true.
type Parts struct {
	// Size is that of the document in bytes.
	Size int
	// CPUFormat is the format of Report.
	CPUFormat string
	// Report is the processor's evidence.
	Report []byte
	// Nonce is nil if there is none.
	Nonce []byte
	// ReportData has ReportDataSize bytes.
	ReportData []byte
	// Keys are the keys of CryptoMaterial.
	Keys CryptoMaterial
	// TLSSPKI and HPKE are their bytes; HPKE is nil if there is none.
	TLSSPKI [sha256.Size]byte
	HPKE    []byte
	// CryptoMaterial, Measurement, Initdata and DeviceEvidence are the decoded bytes; the last two are
	// nil if absent.
	CryptoMaterial []byte
	Measurement    []byte
	Initdata       []byte
	DeviceEvidence []byte
	// Collateral are the bytes by type.
	Collateral map[string][]byte
}

// Parse reads a document strictly: unknown, repeated and missing fields, other encodings of the same
// bytes, digests that are not those of their parts, and what is too large are errors that name the field.
func Parse(text []byte) (Parts, error) {
	document, err := strictjson.DecodeExact[Document](text)
	if err != nil {
		return Parts{}, err
	}
	if document.Format != Format {
		return Parts{}, fmt.Errorf("format: %q is not %s", document.Format, Format)
	}
	if !slices.Contains(cpuFormats, document.CPU.Format) {
		return Parts{}, fmt.Errorf("cpu_evidence.format: %q is not known", document.CPU.Format)
	}
	parts := Parts{Size: len(text), CPUFormat: document.CPU.Format, Measurement: []byte(document.Measurement)}
	if parts.Report, err = readBase64(document.CPU.Report, maxReport); err != nil {
		return Parts{}, fmt.Errorf("cpu_evidence.report_base64: %w", err)
	}
	if parts.Initdata, err = unpack(document.Initdata); err != nil {
		return Parts{}, fmt.Errorf("initdata: %w", err)
	}
	if parts.DeviceEvidence, err = unpack(document.DeviceEvidence); err != nil {
		return Parts{}, fmt.Errorf("device_evidence: %w", err)
	}
	if parts.Collateral, err = readCollateral(document.Collateral); err != nil {
		return Parts{}, err
	}
	if err := parts.readKeys(document.CryptoMaterial); err != nil {
		return Parts{}, fmt.Errorf("crypto_material: %w", err)
	}
	return parts, parts.readChallenge(document)
}

// readKeys reads the crypto material. Its digest is bound, so it has one encoding only.
func (p *Parts) readKeys(packed string) error {
	var err error
	if p.CryptoMaterial, err = readBase64(packed, maxCryptoMaterial); err != nil {
		return err
	}
	if p.Keys, err = strictjson.DecodeExact[CryptoMaterial](p.CryptoMaterial); err != nil {
		return err
	}
	if !bytes.Equal(p.Keys.Bytes(), p.CryptoMaterial) {
		return errors.New("not in its canonical form: sorted keys, no spaces")
	}
	spki, err := readHex(p.Keys.TLSSPKI, sha256.Size)
	if err != nil {
		return fmt.Errorf("tls_spki_sha256: %w", err)
	}
	p.TLSSPKI = [sha256.Size]byte(spki)
	if p.Keys.HPKEX25519 == "" {
		return nil
	}
	if p.HPKE, err = readHex(p.Keys.HPKEX25519, 32); err != nil {
		return fmt.Errorf("hpke_x25519: %w", err)
	}
	return nil
}

// readChallenge reads the challenge and compares what is computed from the parts.
func (p *Parts) readChallenge(document Document) error {
	challenge := document.Challenge
	if challenge.Algorithm != ReportDataAlgorithm {
		return fmt.Errorf("challenge.report_data_algorithm: %q is not %s", challenge.Algorithm, ReportDataAlgorithm)
	}
	var err error
	if challenge.Nonce != "" {
		if p.Nonce, err = readHex(challenge.Nonce, NonceSize); err != nil {
			return fmt.Errorf("challenge.nonce: %w", err)
		}
	}
	endorsed := EndorsedOf(p.CryptoMaterial, p.Measurement, p.DeviceEvidence)
	if document.CPU.Endorsed != endorsed {
		return errors.New("cpu_evidence.endorsed: a digest is not that of its part of the document")
	}
	if p.ReportData, err = ReportData(p.Nonce, endorsed); err != nil {
		return fmt.Errorf("challenge.%w", err)
	}
	if challenge.ReportData != hex.EncodeToString(p.ReportData) {
		return errors.New("challenge.report_data: not what its parts give")
	}
	return nil
}

// Bytes returns the canonical form of the crypto material, whose digest is endorsed.
func (c CryptoMaterial) Bytes() []byte {
	text, _ := json.Marshal(c) // fields are strings, in the order of their names
	return text
}

// Pack returns base64 of gzip of content; empty stays empty.
func Pack(content []byte) string {
	if len(content) == 0 {
		return ""
	}
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, _ = writer.Write(content) // writes to a buffer do not fail
	_ = writer.Close()
	return base64.StdEncoding.EncodeToString(packed.Bytes())
}

// unpack decodes base64 of gzip of at most MaxDocument bytes; nil for an absent field.
func unpack(packed string) ([]byte, error) {
	if packed == "" {
		return nil, nil
	}
	compressed, err := readBase64(packed, MaxDocument)
	if err != nil {
		return nil, err
	}
	source := bytes.NewReader(compressed)
	reader, err := gzip.NewReader(source)
	if err != nil {
		return nil, fmt.Errorf("not gzip: %w", err)
	}
	reader.Multistream(false)
	unpacked, err := io.ReadAll(io.LimitReader(reader, MaxDocument+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("not gzip: %w", err)
	case len(unpacked) == 0:
		return nil, errors.New("empty; leave the field out")
	case len(unpacked) > MaxDocument:
		return nil, strictjson.ErrTooLarge
	case source.Len() != 0:
		return nil, errors.New("bytes follow after the gzip stream")
	}
	return unpacked, nil
}

// readBase64 decodes standard base64 with padding, in the one way to write it.
func readBase64(text string, most int) ([]byte, error) {
	data, err := base64.StdEncoding.Strict().DecodeString(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("not base64: %w", err)
	case base64.StdEncoding.EncodeToString(data) != text:
		return nil, errors.New("not base64: it has line breaks")
	case len(data) == 0:
		return nil, errors.New("empty")
	case len(data) > most:
		return nil, fmt.Errorf("%d bytes, at most %d", len(data), most)
	}
	return data, nil
}

// readHex decodes lower-case hexadecimal digits of a number of bytes.
func readHex(text string, size int) ([]byte, error) {
	data, err := hex.DecodeString(text)
	if err != nil || len(data) != size || hex.EncodeToString(data) != text {
		return nil, fmt.Errorf("%.140q is not %d lower-case hexadecimal digits", text, 2*size)
	}
	return data, nil
}
