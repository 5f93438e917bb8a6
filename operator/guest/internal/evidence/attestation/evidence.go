package attestation

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/foundation/strictjson"
)

// evidence is what the guest components returned. Verifying the processor's signature is up to the verifier.
type evidence struct {
	format string
	// report are the bytes that the processor signed, of which the next two are fields.
	report     []byte
	reportData []byte
	// hostData is HOST_DATA of SNP, MRCONFIGID of TDX: the data that the machine was started with.
	hostData []byte
	// collateral is what came with the report.
	collateral map[string][]byte
}

// Sizes in bytes of the fields with our data.
const (
	reportDataSize = attestdoc.ReportDataSize
	snpHostData    = 32
	tdxConfigID    = 48
)

// Offsets of these fields in a report of SNP.
const (
	snpReportDataAt = 0x50
	snpHostDataAt   = 0xC0
)

// readEvidence parses evidence as the attesters of the guest components write it. A field that is rebuilt
// wrongly gives bytes that the signature does not fit, so this need not be trusted.
func readEvidence(tee string, text []byte) (evidence, error) {
	switch tee {
	case TEESNP:
		return readSNP(text)
	case TEETDX:
		return readTDX(text)
	}
	return evidence{}, fmt.Errorf("evidence of kind %q is not supported", tee)
}

func readSNP(text []byte) (evidence, error) {
	read, err := strictjson.Decode[snpEvidence](text)
	if err == nil && read.Report == nil {
		err = errors.New("attestation_report is missing")
	}
	made := evidence{format: attestdoc.CPUSEVSNP, collateral: map[string][]byte{}}
	if err == nil {
		made.report, err = read.Report.bytes()
	}
	if err != nil {
		return evidence{}, fmt.Errorf("not evidence of SNP: %w", err)
	}
	made.reportData = made.report[snpReportDataAt : snpReportDataAt+reportDataSize]
	made.hostData = made.report[snpHostDataAt : snpHostDataAt+snpHostData]
	for _, certificate := range read.CertChain {
		switch string(certificate.Type) {
		case `"VCEK"`:
			made.collateral[attestdoc.AMDVCEK] = certificate.Data
		case `"VLEK"`:
			made.collateral[attestdoc.AMDVLEK] = certificate.Data
		}
	}
	return made, nil
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
func readTDX(text []byte) (evidence, error) {
	var document struct {
		Quote []byte `json:"quote"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return evidence{}, fmt.Errorf("not evidence of TDX: %w", err)
	}
	quote := document.Quote
	if len(quote) < quoteHeader {
		return evidence{}, errors.New("not evidence of TDX: quote is missing or too short")
	}
	version, tee := binary.LittleEndian.Uint16(quote), binary.LittleEndian.Uint32(quote[4:])
	if tee != quoteTEETDX {
		return evidence{}, fmt.Errorf("not evidence of TDX: the quote is of TEE type %#x", tee)
	}
	body := quote[quoteHeader:]
	switch version {
	case 4:
	case 5:
		body = body[min(quoteBodyHead, len(body)):]
	default:
		return evidence{}, fmt.Errorf("a quote of version %d cannot be read; versions 4 and 5 can", version)
	}
	if len(body) < bodySize {
		return evidence{}, errors.New("not evidence of TDX: the quote is too short")
	}
	return evidence{
		format: attestdoc.CPUTDX, report: quote, reportData: body[bodyReport:bodySize], hostData: body[bodyConfigID : bodyConfigID+tdxConfigID],
	}, nil
}

// compare returns an error if the evidence does not bind the expected data.
func (e evidence) compare(reportData, hostData []byte) error {
	if !bytes.Equal(e.reportData, reportData) {
		return errors.New("the evidence binds other data than requested; " +
			"the attestation service must support encoding=base64 (guest components of 2025 or newer)")
	}
	if hostData != nil && !bytes.Equal(e.hostData, hostData) {
		return fmt.Errorf("the machine was started with other initdata: it reports %x, the published digest is %x", e.hostData, hostData)
	}
	return nil
}

// runtimeData encodes report data for the attestation service's query.
func runtimeData(reportData []byte) string { return base64.RawURLEncoding.EncodeToString(reportData) }
