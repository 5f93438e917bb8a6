package attestation

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"cloister.dev/guest/internal/evidence/attestdoc"
)

// claims are the fields of evidence that this package compares. Verifying the processor's
// signature is up to the verifier.
type claims struct {
	reportData []byte
	// hostData is HOST_DATA of SNP, MRCONFIGID of TDX: the data that the machine was started with.
	hostData []byte
}

// Sizes in bytes of the fields with our data.
const (
	reportDataSize = attestdoc.ReportDataSize
	snpHostData    = 32
	tdxConfigID    = 48
)

// readEvidence parses evidence as the attesters of the guest components write it.
func readEvidence(tee string, evidence []byte) (claims, error) {
	switch tee {
	case TEESNP:
		return readSNP(evidence)
	case TEETDX:
		return readTDX(evidence)
	}
	return claims{}, fmt.Errorf("evidence of kind %q is not supported", tee)
}

// readSNP parses {attestation_report: {report_data: [64 numbers], host_data: [32 numbers], …}, cert_chain}.
func readSNP(evidence []byte) (claims, error) {
	var document struct {
		Report *struct {
			ReportData []byte `json:"report_data"`
			HostData   []byte `json:"host_data"`
		} `json:"attestation_report"`
	}
	if err := json.Unmarshal(evidence, &document); err != nil {
		return claims{}, fmt.Errorf("not evidence of SNP: %w", err)
	}
	if document.Report == nil || len(document.Report.ReportData) != reportDataSize || len(document.Report.HostData) != snpHostData {
		return claims{}, errors.New("not evidence of SNP: attestation_report with report_data and host_data is missing")
	}
	return claims{document.Report.ReportData, document.Report.HostData}, nil
}

// Layout of a TD quote (Intel, "TDX DCAP Quoting Library API", "TD Quote Format").
const (
	quoteHeader = 48
	// quoteBodyHead is the length of the body's type and size, which precede it in version 5.
	quoteBodyHead = 6
	quoteTEETDX   = 0x81
	bodyConfigID  = 184
	bodyReport    = 520
	bodySize      = bodyReport + reportDataSize
)

// readTDX parses {quote: base64, cc_eventlog}.
func readTDX(evidence []byte) (claims, error) {
	var document struct {
		Quote []byte `json:"quote"`
	}
	if err := json.Unmarshal(evidence, &document); err != nil {
		return claims{}, fmt.Errorf("not evidence of TDX: %w", err)
	}
	quote := document.Quote
	if len(quote) < quoteHeader {
		return claims{}, errors.New("not evidence of TDX: quote is missing or too short")
	}
	version, tee := binary.LittleEndian.Uint16(quote), binary.LittleEndian.Uint32(quote[4:])
	if tee != quoteTEETDX {
		return claims{}, fmt.Errorf("not evidence of TDX: the quote is of TEE type %#x", tee)
	}
	body := quote[quoteHeader:]
	switch version {
	case 4:
	case 5:
		body = body[min(quoteBodyHead, len(body)):]
	default:
		return claims{}, fmt.Errorf("a quote of version %d cannot be read; versions 4 and 5 can", version)
	}
	if len(body) < bodySize {
		return claims{}, errors.New("not evidence of TDX: the quote is too short")
	}
	return claims{body[bodyReport:bodySize], body[bodyConfigID : bodyConfigID+tdxConfigID]}, nil
}

// compare returns an error if the claims are not the expected ones.
func (c claims) compare(reportData, hostData []byte) error {
	if !bytes.Equal(c.reportData, reportData) {
		return errors.New("the evidence binds other data than requested; " +
			"the attestation service must support encoding=base64 (guest components of 2025 or newer)")
	}
	if hostData != nil && !bytes.Equal(c.hostData, hostData) {
		return fmt.Errorf("the machine was started with other initdata: it reports %x, the published digest is %x", c.hostData, hostData)
	}
	return nil
}

// runtimeData encodes report data for the attestation service's query.
func runtimeData(reportData []byte) string { return base64.RawURLEncoding.EncodeToString(reportData) }
