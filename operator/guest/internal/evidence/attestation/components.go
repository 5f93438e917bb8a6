package attestation

import (
	"encoding/json"
	"errors"
	"fmt"

	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/foundation/strictjson"
)

// rawEvidence is evidence as the processor made it, and what came with it.
type rawEvidence struct {
	format     string
	report     []byte
	collateral map[string][]byte
}

// readRaw returns the processor's bytes from evidence as the guest components write it. A field that is
// rebuilt wrongly gives bytes that the signature does not fit, so this need not be trusted.
func readRaw(tee string, evidence []byte) (rawEvidence, error) {
	switch tee {
	case TEESNP:
		return readRawSNP(evidence)
	case TEETDX:
		return readRawTDX(evidence)
	}
	return rawEvidence{}, fmt.Errorf("evidence of kind %q is not supported", tee)
}

func readRawSNP(evidence []byte) (rawEvidence, error) {
	read, err := strictjson.Decode[snpEvidence](evidence)
	if err != nil {
		return rawEvidence{}, fmt.Errorf("not evidence of SNP: %w", err)
	}
	if read.Report == nil {
		return rawEvidence{}, errors.New("not evidence of SNP: attestation_report is missing")
	}
	made := rawEvidence{format: attestdoc.CPUSEVSNP, collateral: map[string][]byte{}}
	if made.report, err = read.Report.bytes(); err != nil {
		return rawEvidence{}, fmt.Errorf("not evidence of SNP: %w", err)
	}
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

func readRawTDX(evidence []byte) (rawEvidence, error) {
	var read struct {
		Quote []byte `json:"quote"`
	}
	if err := json.Unmarshal(evidence, &read); err != nil {
		return rawEvidence{}, fmt.Errorf("not evidence of TDX: %w", err)
	}
	return rawEvidence{format: attestdoc.CPUTDX, report: read.Quote}, nil
}
