package collateral

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"

	"cloister.dev/guest/internal/evidence/attestdoc"
)

// The guest reads from evidence only which processor it is of: the vendors' libraries, which verify it,
// would make each enclave 5 MB larger. The tests compare with them.

const (
	kdsAddress = "https://kdsintf.amd.com/"
	pcsAddress = "https://api.trustedservices.intel.com/"
	// rootListAddress is where Intel publishes the revocation list of its root.
	rootListAddress = "https://certificates.trustedservices.intel.com/IntelSGXRootCA.der"
)

// required is one piece of collateral and where its vendor publishes it.
type required struct {
	kind, address string
	// chain is the type of what is in the header of the answer; both are empty where there is none.
	chain, header string
}

// requiredFor returns what a document should have for evidence of a format.
func requiredFor(format string, report []byte) ([]required, error) {
	switch format {
	case attestdoc.CPUSEVSNP:
		return requiredForSNP(report)
	case attestdoc.CPUTDX:
		return requiredForTDX(report)
	}
	return nil, fmt.Errorf("there is no collateral for evidence of the format %q", format)
}

// Layout of a report (AMD, "SEV Secure Nested Paging Firmware ABI Specification").
const (
	snpReportSize = 1184
	snpKeyInfo    = 0x48
	snpTCB        = 0x180
	snpFamily     = 0x188
	snpChipID     = 0x1A0
	signerVCEK    = 0
	signerVLEK    = 1
)

// products are the names of product lines by family and model (AMD, "Versioned Chip Endorsement Key
// Certificate and KDS Interface Specification").
var products = map[[2]byte]string{{0x19, 0x01}: "Milan", {0x19, 0x11}: "Genoa", {0x1A, 0x02}: "Turin"}

func requiredForSNP(raw []byte) ([]required, error) {
	if len(raw) != snpReportSize {
		return nil, fmt.Errorf("a report of SNP has %d bytes, not %d", snpReportSize, len(raw))
	}
	product, found := products[[2]byte(raw[snpFamily:])]
	if !found {
		return nil, fmt.Errorf("the product line of family %#x, model %#x is not known", raw[snpFamily], raw[snpFamily+1])
	}
	signer := raw[snpKeyInfo] >> 2 & 7
	path, known := map[byte]string{signerVCEK: "vcek/v1/", signerVLEK: "vlek/v1/"}[signer]
	if !known {
		return nil, fmt.Errorf("a report that key %d signs has no certificate", signer)
	}
	base := kdsAddress + path + product
	all := []required{{kind: attestdoc.AMDCertChain, address: base + "/cert_chain"}, {kind: attestdoc.AMDCRL, address: base + "/crl"}}
	if signer == signerVLEK {
		// AMD gives the certificate of a provider's key only to the provider, who puts it into the evidence.
		return all, nil
	}
	tcb := raw[snpTCB:]
	certificate := fmt.Sprintf("%s/%s?blSPL=%d&teeSPL=%d&snpSPL=%d&ucodeSPL=%d",
		base, hex.EncodeToString(raw[snpChipID:snpChipID+64]), tcb[0], tcb[1], tcb[6], tcb[7])
	if product == "Turin" { // a shorter chip id, and another part of the firmware
		certificate = fmt.Sprintf("%s/%s?fmcSPL=%d&blSPL=%d&teeSPL=%d&snpSPL=%d&ucodeSPL=%d",
			base, hex.EncodeToString(raw[snpChipID:snpChipID+8]), tcb[0], tcb[1], tcb[2], tcb[3], tcb[7])
	}
	return append(all, required{kind: attestdoc.AMDVCEK, address: certificate}), nil
}

func requiredForTDX(quote []byte) ([]required, error) {
	certificate, err := processorCertificate(quote)
	if err != nil {
		return nil, err
	}
	fmspc, err := processorClass(certificate)
	if err != nil {
		return nil, err
	}
	authority := "platform"
	if certificate.Issuer.CommonName == "Intel SGX PCK Processor CA" {
		authority = "processor"
	}
	return []required{
		{attestdoc.IntelTCBInfo, pcsAddress + "tdx/certification/v4/tcb?fmspc=" + hex.EncodeToString(fmspc), attestdoc.IntelTCBInfoChain, "Tcb-Info-Issuer-Chain"},
		{attestdoc.IntelQEIdentity, pcsAddress + "tdx/certification/v4/qe/identity", attestdoc.IntelQEIdentityChain, "Sgx-Enclave-Identity-Issuer-Chain"},
		{attestdoc.IntelPCKCRL, pcsAddress + "sgx/certification/v4/pckcrl?ca=" + authority + "&encoding=der", attestdoc.IntelPCKCRLChain, "Sgx-Pck-Crl-Issuer-Chain"},
		{kind: attestdoc.IntelRootCRL, address: rootListAddress},
	}, nil
}

// processorCertificate returns the first certificate of a quote, which is that of the processor's key.
func processorCertificate(quote []byte) (*x509.Certificate, error) {
	start := bytes.Index(quote, []byte("-----BEGIN CERTIFICATE-----"))
	if start < 0 {
		return nil, errors.New("the quote has no certificate")
	}
	block, _ := pem.Decode(quote[start:])
	if block == nil {
		return nil, errors.New("the quote's certificate is not PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

// Intel's extension of processors' certificates, and the class of processors (FMSPC) in it.
var (
	sgxExtension   = asn1.ObjectIdentifier{1, 2, 840, 113741, 1, 13, 1}
	classExtension = asn1.ObjectIdentifier{1, 2, 840, 113741, 1, 13, 1, 4}
)

// processorClass returns the six bytes by which Intel names a class of processors.
func processorClass(certificate *x509.Certificate) ([]byte, error) {
	for _, extension := range certificate.Extensions {
		if !extension.Id.Equal(sgxExtension) {
			continue
		}
		var fields []asn1.RawValue
		if _, err := asn1.Unmarshal(extension.Value, &fields); err != nil {
			return nil, fmt.Errorf("the extension of the quote's certificate cannot be read: %w", err)
		}
		for _, field := range fields {
			var class struct {
				ID    asn1.ObjectIdentifier
				Value []byte
			}
			if _, err := asn1.Unmarshal(field.FullBytes, &class); err == nil && class.ID.Equal(classExtension) && len(class.Value) == 6 {
				return class.Value, nil
			}
		}
	}
	return nil, errors.New("the quote's certificate does not name a class of processors")
}
