package attestation

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// expected is what a client knows before its request: from the repository, the Host's
// manifest and its own TLS connection.
type expected struct {
	format      string
	measurement string // canonical form, recomputed
	initdata    []byte // recomputed; nil means none is measured
	certificate *x509.Certificate
	nonce       []byte
}

// verify is a client: it recomputes every byte except the processor's signature, which a
// real client checks with the manufacturer's certificates. It shares no code with the package.
func verify(response []byte, want expected) error {
	var document struct {
		Format    string
		Challenge struct {
			Nonce      string
			ReportData string `json:"report_data"`
		}
		CPU struct {
			Format string
			Report []byte `json:"report_base64"`
		} `json:"cpu_evidence"`
		Keys                  []byte `json:"crypto_material"`
		Measurement, Initdata string
		Devices               string `json:"device_evidence"`
	}
	if err := json.Unmarshal(response, &document); err != nil {
		return err
	}
	if document.Format != "https://cloister.dev/attestation/v3" || document.CPU.Format != want.format {
		return fmt.Errorf("format %s, %s", document.Format, document.CPU.Format)
	}
	if document.Measurement != want.measurement {
		return fmt.Errorf("another measurement document: %s", document.Measurement)
	}
	if document.Challenge.Nonce != hex.EncodeToString(want.nonce) {
		return fmt.Errorf("another nonce: %s", document.Challenge.Nonce)
	}
	key := sha256.Sum256(want.certificate.RawSubjectPublicKeyInfo)
	if !strings.Contains(string(document.Keys), hex.EncodeToString(key[:])) {
		return fmt.Errorf("another key: %s", document.Keys)
	}
	devices, err := unpack(document.Devices)
	if err != nil {
		return err
	}
	hash := sha256.New()
	hash.Write([]byte("https://cloister.dev/attestation/report-data/v1"))
	hash.Write(append(want.nonce, make([]byte, 32-len(want.nonce))...))
	for _, part := range [][]byte{document.Keys, []byte(want.measurement), devices} {
		digest := sha256.Sum256(part)
		hash.Write(digest[:])
	}
	bound := hex.EncodeToString(hash.Sum(nil)) + strings.Repeat("00", 32)
	reportData, hostData, err := fields(document.CPU.Format, document.CPU.Report)
	if err != nil {
		return err
	}
	if reportData != bound || document.Challenge.ReportData != bound {
		return fmt.Errorf("the evidence binds %s, not %s", reportData, bound)
	}
	return verifyInitdata(document.Initdata, hostData, want)
}

func verifyInitdata(packed, hostData string, want expected) error {
	if want.initdata == nil {
		return nil
	}
	toml, err := unpack(packed)
	if err != nil || !bytes.Equal(toml, want.initdata) {
		return fmt.Errorf("another initdata: %w: %s", err, toml)
	}
	short, long := sha256.Sum256(toml), sha512.Sum384(toml)
	if hostData != hex.EncodeToString(short[:]) && hostData != hex.EncodeToString(long[:]) {
		return fmt.Errorf("the machine was started with %s", hostData)
	}
	return nil
}

// fields returns the two fields of a report in hexadecimal digits.
func fields(format string, report []byte) (string, string, error) {
	switch strings.TrimPrefix(format, "https://cloister.dev/cpu-evidence/") {
	case "none/v1":
		var dummy struct {
			ReportData string `json:"report_data"`
		}
		err := json.Unmarshal(report, &dummy)
		return dummy.ReportData, "", err
	case "sev-snp/v1":
		if len(report) != 1184 {
			return "", "", fmt.Errorf("a report of %d bytes", len(report))
		}
		return hex.EncodeToString(report[0x50:0x90]), hex.EncodeToString(report[0xC0:0xE0]), nil
	case "tdx/v1":
		start := 48
		if report[0] == 5 {
			start = 54
		}
		return hex.EncodeToString(report[start+520 : start+584]), hex.EncodeToString(report[start+184 : start+232]), nil
	}
	return "", "", fmt.Errorf("format %q", format)
}

func unpack(packed string) ([]byte, error) {
	if packed == "" {
		return nil, nil
	}
	raw, err := base64.StdEncoding.DecodeString(packed)
	if err != nil {
		return nil, err
	}
	reader, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}
