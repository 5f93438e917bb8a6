package verify

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"cloister.dev/guest/internal/evidence/attestdoc"
)

// Fetch returns headers and body of an address of AMD's or Intel's service. Whatever it returns is
// signed by the vendor.
type Fetch func(address string) (map[string][]string, []byte, error)

// errNoCollateral is returned for what neither the document has nor may be fetched.
var errNoCollateral = errors.New("the document does not have it, and nothing may be fetched")

// source answers requests for collateral from a document first, and else by fetching.
type source struct {
	held  map[string][]byte
	fetch Fetch
}

// answer is what of a document answers an address.
type answer struct {
	host, path string
	// body and chain are types of collateral; chain is that of a header, if it has one.
	body, chain, header string
}

// answers are the addresses that the libraries request. AMD's depend on product and processor, and so do
// Intel's queries: what is not of this processor does not verify.
var answers = []answer{
	{"kdsintf.amd.com", "/vcek/v1/{product}/crl", attestdoc.AMDCRL, "", ""},
	{"kdsintf.amd.com", "/vlek/v1/{product}/crl", attestdoc.AMDCRL, "", ""},
	{"kdsintf.amd.com", "/vcek/v1/{product}/cert_chain", attestdoc.AMDCertChain, "", ""},
	{"kdsintf.amd.com", "/vlek/v1/{product}/cert_chain", attestdoc.AMDCertChain, "", ""},
	{"api.trustedservices.intel.com", "/tdx/certification/v4/tcb", attestdoc.IntelTCBInfo, attestdoc.IntelTCBInfoChain, "Tcb-Info-Issuer-Chain"},
	{"api.trustedservices.intel.com", "/tdx/certification/v4/qe/identity", attestdoc.IntelQEIdentity, attestdoc.IntelQEIdentityChain, "Sgx-Enclave-Identity-Issuer-Chain"},
	{"api.trustedservices.intel.com", "/sgx/certification/v4/pckcrl", attestdoc.IntelPCKCRL, attestdoc.IntelPCKCRLChain, "Sgx-Pck-Crl-Issuer-Chain"},
	{"certificates.trustedservices.intel.com", "/IntelSGXRootCA.der", attestdoc.IntelRootCRL, "", ""},
}

// matches reports whether an address is that of the answer; {product} is any one part of a path.
func (a answer) matches(address *url.URL) bool {
	given, expected := strings.Split(address.Path, "/"), strings.Split(a.path, "/")
	if address.Host != a.host || len(given) != len(expected) {
		return false
	}
	for index := range expected {
		if expected[index] != given[index] && expected[index] != "{product}" {
			return false
		}
	}
	return true
}

// get returns headers and body of an address.
func (s source) get(address string) (map[string][]string, []byte, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, nil, err
	}
	for _, each := range answers {
		body, chain := s.held[each.body], s.held[each.chain]
		if !each.matches(parsed) || body == nil || (each.chain != "" && chain == nil) {
			continue
		}
		if each.chain == "" {
			return nil, body, nil
		}
		return map[string][]string{each.header: {url.QueryEscape(string(chain))}}, body, nil
	}
	if s.fetch == nil {
		return nil, nil, fmt.Errorf("%s: %w", address, errNoCollateral)
	}
	return s.fetch(address)
}

// amdSource is a source for the library of SNP, intelSource one for that of TDX.
type (
	amdSource   struct{ source }
	intelSource struct{ source }
)

// Get implements the library's interface.
func (s amdSource) Get(address string) ([]byte, error) {
	_, body, err := s.get(address)
	return body, err
}

// Get implements the library's interface.
func (s intelSource) Get(address string) (map[string][]string, []byte, error) { return s.get(address) }
