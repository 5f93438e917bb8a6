package attestdoc

import (
	"encoding/base64"
	"encoding/hex"
)

// Claim is what evidence is requested for: everything of a document except evidence and collateral.
type Claim struct {
	// Nonce is nil if there is none.
	Nonce []byte
	// Keys are the keys of the enclave.
	Keys CryptoMaterial
	// Measurement is the measurement document; Initdata and DeviceEvidence are nil if there is none.
	Measurement    []byte
	Initdata       []byte
	DeviceEvidence []byte
}

// ReportData returns the 64 bytes that evidence for the claim must bind.
func (c Claim) ReportData() ([]byte, error) {
	return ReportData(c.Nonce, EndorsedOf(c.Keys.Bytes(), c.Measurement, c.DeviceEvidence))
}

// DeviceChallenge returns the 32 bytes that evidence of devices for the claim must bind.
func (c Claim) DeviceChallenge() ([]byte, error) {
	return DeviceChallenge(c.Nonce, c.Keys.Bytes(), c.Measurement)
}

// Document returns the document of a claim with evidence of a format, which binds its report data.
func (c Claim) Document(format string, report []byte, collateral map[string][]byte) (Document, error) {
	reportData, err := c.ReportData()
	if err != nil {
		return Document{}, err
	}
	return Document{
		Format:    Format,
		Challenge: Challenge{Nonce: hex.EncodeToString(c.Nonce), ReportData: hex.EncodeToString(reportData), Algorithm: ReportDataAlgorithm},
		CPU: CPUEvidence{
			Format: format, Report: base64.StdEncoding.EncodeToString(report),
			Endorsed: EndorsedOf(c.Keys.Bytes(), c.Measurement, c.DeviceEvidence),
		},
		CryptoMaterial: base64.StdEncoding.EncodeToString(c.Keys.Bytes()),
		Measurement:    string(c.Measurement),
		Initdata:       Pack(c.Initdata),
		DeviceEvidence: Pack(c.DeviceEvidence),
		Collateral:     CollateralOf(collateral),
	}, nil
}
