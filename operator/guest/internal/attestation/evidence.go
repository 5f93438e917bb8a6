package attestation

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// claims is what of a piece of evidence this package can compare. Whether the processor
// signed it is for the verifier to find out.
type claims struct {
	reportData []byte
	// hostData is HOST_DATA of SNP, MRCONFIGID of TDX: what the machine was started with.
	hostData []byte
}

// Sizes in bytes of the fields that carry data of ours.
const (
	reportDataSize = 64
	snpHostData    = 32
	tdxConfigID    = 48
)

// readEvidence reads evidence as the attesters of the guest components write it.
func readEvidence(tee string, evidence []byte) (claims, error) {
	switch tee {
	case TEESNP:
		return readSNP(evidence)
	case TEETDX:
		return readTDX(evidence)
	}
	return claims{}, fmt.Errorf("there is no evidence of kind %q", tee)
}

// readSNP reads {attestation_report: {report_data: [64 numbers], host_data: [32 numbers], …}, cert_chain}.
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
	// quoteBodyHead is the type and the size of the body, which version 5 has in front of it.
	quoteBodyHead = 6
	quoteTEETDX   = 0x81
	bodyConfigID  = 184
	bodyReport    = 520
	bodySize      = bodyReport + reportDataSize
)

// readTDX reads {quote: base64, cc_eventlog}.
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

// compare tells what of the claims is not as it has to be.
func (c claims) compare(reportData, hostData []byte) error {
	if !bytes.Equal(c.reportData, reportData) {
		return errors.New("the evidence binds other data than was asked for; " +
			"the attestation service must know encoding=base64 (guest components of 2025 or newer)")
	}
	if hostData != nil && !bytes.Equal(c.hostData, hostData) {
		return fmt.Errorf("the machine was started with other initdata: it reports %x, the published digest is %x", c.hostData, hostData)
	}
	return nil
}

// runtimeData writes report data as the attestation service takes it in a query.
func runtimeData(reportData []byte) string { return base64.RawURLEncoding.EncodeToString(reportData) }
