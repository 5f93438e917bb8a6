package attestdoc

import (
	"encoding/base64"
	"fmt"
	"slices"

	"cloister.dev/guest/internal/foundation/strictjson"
)

// Types of collateral: the answers of AMD's Key Distribution Service and of Intel's Provisioning
// Certification Service, byte for byte. The issuer chains of Intel's are headers of the answer.
const (
	AMDVCEK              = "amd-vcek"                    // certificate of the processor's key, DER
	AMDVLEK              = "amd-vlek"                    // certificate of a provider's key, DER
	AMDCertChain         = "amd-cert-chain"              // intermediate and root certificates, PEM
	AMDCRL               = "amd-crl"                     // revocation list of the product line, DER
	IntelTCBInfo         = "intel-tcb-info"              // JSON
	IntelTCBInfoChain    = "intel-tcb-info-issuer-chain" // PEM
	IntelQEIdentity      = "intel-qe-identity"           // JSON
	IntelQEIdentityChain = "intel-qe-identity-issuer-chain"
	IntelPCKCRL          = "intel-pck-crl" // DER
	IntelPCKCRLChain     = "intel-pck-crl-issuer-chain"
	IntelRootCRL         = "intel-root-ca-crl" // DER
	maxCollateral        = 256 << 10
	maxAllCollateral     = 512 << 10
)

var collateralTypes = []string{
	AMDVCEK, AMDVLEK, AMDCertChain, AMDCRL, IntelTCBInfo, IntelTCBInfoChain, IntelQEIdentity, IntelQEIdentityChain, IntelPCKCRL, IntelPCKCRLChain, IntelRootCRL,
}

// Collateral is one thing that a vendor publishes of its processors. The vendor has signed it, so it does
// not matter who carried it.
type Collateral struct {
	// Type is one of the constants; each is there at most once.
	Type string `json:"type"`
	// Data is base64 of its bytes.
	Data string `json:"data"`
}

// CollateralOf returns collateral as a document has it: those with bytes, in the order of the constants.
func CollateralOf(found map[string][]byte) []Collateral {
	made := []Collateral{}
	for _, name := range collateralTypes {
		if len(found[name]) > 0 {
			made = append(made, Collateral{Type: name, Data: base64.StdEncoding.EncodeToString(found[name])})
		}
	}
	return made
}

// ParseCollateral reads a list of collateral as a document has it, and returns the bytes by type.
func ParseCollateral(text []byte) (map[string][]byte, error) {
	listed, err := strictjson.DecodeExact[[]Collateral](text)
	if err != nil {
		return nil, err
	}
	return readCollateral(listed)
}

// readCollateral returns the bytes of collateral by its type.
func readCollateral(listed []Collateral) (map[string][]byte, error) {
	found, size := map[string][]byte{}, 0
	for index, each := range listed {
		field := fmt.Sprintf("collateral[%d]", index)
		if !slices.Contains(collateralTypes, each.Type) {
			return nil, fmt.Errorf("%s.type: %q is not known", field, each.Type)
		}
		if _, twice := found[each.Type]; twice {
			return nil, fmt.Errorf("%s.type: %q is given twice", field, each.Type)
		}
		data, err := readBase64(each.Data, maxCollateral)
		if err != nil {
			return nil, fmt.Errorf("%s.data: %w", field, err)
		}
		found[each.Type] = data
		if size += len(data); size > maxAllCollateral {
			return nil, fmt.Errorf("collateral: more than %d bytes altogether", maxAllCollateral)
		}
	}
	return found, nil
}
