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
		Format, Body, Measurement, Initdata, Nonce string
	}
	if err := json.Unmarshal(response, &document); err != nil {
		return err
	}
	if document.Format != want.format {
		return fmt.Errorf("format %s", document.Format)
	}
	if document.Measurement != want.measurement {
		return fmt.Errorf("another measurement document: %s", document.Measurement)
	}
	if document.Nonce != hex.EncodeToString(want.nonce) {
		return fmt.Errorf("another nonce: %s", document.Nonce)
	}
	report, err := unpack(document.Body)
	if err != nil {
		return err
	}
	key := sha256.Sum256(want.certificate.RawSubjectPublicKeyInfo)
	digest := sha256.Sum256([]byte(want.measurement))
	second := sha256.Sum256(append(digest[:], want.nonce...))
	bound := hex.EncodeToString(key[:]) + hex.EncodeToString(second[:])
	reportData, hostData, err := fields(document.Format, report)
	if err != nil {
		return err
	}
	if reportData != bound {
		return fmt.Errorf("the evidence binds %s, not %s", reportData, bound)
	}
	if want.initdata == nil {
		return nil
	}
	toml, err := unpack(document.Initdata)
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
	switch format[strings.LastIndex(strings.TrimSuffix(format, "/v2"), "/")+1:] {
	case "dummy/v2":
		var dummy struct {
			ReportData string `json:"report_data"`
		}
		err := json.Unmarshal(report, &dummy)
		return dummy.ReportData, "", err
	case "sev-snp-guest/v2":
		var evidence struct {
			Report struct {
				ReportData [64]byte `json:"report_data"`
				HostData   [32]byte `json:"host_data"`
			} `json:"attestation_report"`
		}
		err := json.Unmarshal(report, &evidence)
		return hex.EncodeToString(evidence.Report.ReportData[:]), hex.EncodeToString(evidence.Report.HostData[:]), err
	case "tdx-guest/v2":
		var evidence struct{ Quote string }
		if err := json.Unmarshal(report, &evidence); err != nil {
			return "", "", err
		}
		quote, err := base64.StdEncoding.DecodeString(evidence.Quote)
		if err != nil {
			return "", "", err
		}
		start := 48
		if quote[0] == 5 {
			start = 54
		}
		return hex.EncodeToString(quote[start+520 : start+584]), hex.EncodeToString(quote[start+184 : start+232]), nil
	}
	return "", "", fmt.Errorf("format %q", format)
}

func unpack(packed string) ([]byte, error) {
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
