// Package teetest stands in for processors with a TEE, and for their vendors, in tests: it has roots of
// its own, and signs with them what the vendors sign, in their formats. No program of a release uses it.
package teetest

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"time"

	"github.com/google/go-sev-guest/abi"
	"github.com/google/go-sev-guest/kds"
	spb "github.com/google/go-sev-guest/proto/sevsnp"
	sevtest "github.com/google/go-sev-guest/testing"
	"github.com/google/go-sev-guest/verify/trust"

	"cloister.dev/guest/internal/evidence/attestdoc"
)

// snpProduct is the product line of the test processor.
const snpProduct = "Milan"

// providersSerial is the serial number of the certificate that signs those of providers' keys.
const providersSerial = 0xA57C

// listLife is how long revocation lists and other collateral are valid.
const listLife = 30 * 24 * time.Hour

// SNP is a processor with SNP and its vendor.
type SNP struct {
	signer *sevtest.AmdSigner
	tcb    uint64
}

// SNPOptions are the fields of a report that tests decide.
type SNPOptions struct {
	// Policy is the guest policy.
	Policy abi.SnpPolicy
	// Provider means that a provider's key signs (VLEK), in place of the processor's.
	Provider bool
	// ReportData has 64 bytes, Launch 48, HostData 32.
	ReportData, Launch, HostData []byte
	// Change changes the report before it is signed.
	Change func(raw []byte)
}

// NewSNP returns a processor whose certificates are valid from a time on, with firmware of level zero.
func NewSNP(from time.Time) (*SNP, error) { return NewSNPOf(from, kds.TCBParts{}) }

// NewSNPOf returns a processor with firmware of a level. All have the same keys.
func NewSNPOf(from time.Time, level kds.TCBParts) (*SNP, error) {
	tcb, err := kds.ComposeTCBParts(level)
	if err != nil {
		return nil, err
	}
	builder := &sevtest.AmdSignerBuilder{
		Keys: sevtest.DefaultAmdKeys(), ProductName: snpProduct + "-B1", CSPID: "go-sev-guest", TCB: tcb,
		ArkCreationTime: from, AskCreationTime: from, AsvkCreationTime: from, VcekCreationTime: from, VlekCreationTime: from,
		AsvkCustom: sevtest.CertOverride{SerialNumber: big.NewInt(providersSerial)},
		VcekCustom: sevtest.CertOverride{Extensions: sevtest.CustomExtensions(level, make([]byte, abi.ChipIDSize), "", snpProduct+"-B1")},
		VlekCustom: sevtest.CertOverride{Extensions: sevtest.CustomExtensions(level, nil, "go-sev-guest", snpProduct+"-B1")},
	}
	signer, err := builder.TestOnlyCertChain()
	return &SNP{signer, uint64(tcb)}, err
}

// Roots are the vendor's, for a verifier.
func (s *SNP) Roots() map[string][]*trust.AMDRootCerts {
	return map[string][]*trust.AMDRootCerts{snpProduct: {{
		Product: snpProduct, ProductLine: snpProduct,
		ProductCerts: &trust.ProductCerts{Ark: s.signer.Ark, Ask: s.signer.Ask, Asvk: s.signer.Asvk},
	}}}
}

// VCEK is the certificate of the processor's key in DER.
func (s *SNP) VCEK() []byte { return s.signer.Vcek.Raw }

// VLEK is the certificate of a provider's key in DER.
func (s *SNP) VLEK() []byte { return s.signer.Vlek.Raw }

// CertChain are the certificates of the vendor in PEM: the intermediate one and the root.
func (s *SNP) CertChain() []byte { return append(asPEM(s.signer.Ask.Raw), asPEM(s.signer.Ark.Raw)...) }

// Report returns a signed report.
func (s *SNP) Report(options SNPOptions) ([]byte, error) {
	report := sevtest.CreateRawReport(&sevtest.TestReportOptions{
		ReportData: options.ReportData, Version: 3,
		FMS: abi.MaskedCpuid1EaxFromSevProduct(&spb.SevProduct{Name: spb.SevProduct_SEV_PRODUCT_MILAN}),
	})
	raw := report[:abi.ReportSize]
	binary.LittleEndian.PutUint64(raw[0x08:], abi.SnpPolicyToBytes(options.Policy))
	copy(raw[0x90:0xC0], options.Launch)
	copy(raw[0xC0:0xE0], options.HostData)
	for _, at := range []int{0x38, 0x180, 0x1E0, 0x1F0} {
		binary.LittleEndian.PutUint64(raw[at:], s.tcb)
	}
	if options.Provider {
		binary.LittleEndian.PutUint32(raw[0x48:], uint32(abi.VlekReportSigner)<<2)
	}
	if options.Change != nil {
		options.Change(raw)
	}
	first, second, err := s.signer.Sign(abi.SignedComponent(raw))
	if err != nil {
		return nil, err
	}
	return raw, abi.SetSignature(first, second, raw)
}

// RevocationList returns the vendor's list, issued at a time, of the intermediate certificate or of none.
func (s *SNP) RevocationList(at time.Time, revoked bool) ([]byte, error) {
	if revoked {
		return s.listOf(at, s.signer.Ask)
	}
	return s.listOf(at)
}

// ProviderRevoked returns the vendor's list, issued at a time, of the certificate that signs providers'.
func (s *SNP) ProviderRevoked(at time.Time) ([]byte, error) { return s.listOf(at, s.signer.Asvk) }

func (s *SNP) listOf(at time.Time, revoked ...*x509.Certificate) ([]byte, error) {
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: at, NextUpdate: at.Add(listLife), SignatureAlgorithm: x509.SHA384WithRSAPSS}
	for _, each := range revoked {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: each.SerialNumber, RevocationTime: at})
	}
	issuer := *s.signer.Ark
	if len(issuer.SubjectKeyId) == 0 {
		issuer.SubjectKeyId = []byte{1}
	}
	return x509.CreateRevocationList(rand.Reader, list, &issuer, s.signer.Keys.Ark)
}

// Collateral is all that a document has of the vendor.
func (s *SNP) Collateral(at time.Time) (map[string][]byte, error) {
	list, err := s.RevocationList(at, false)
	return map[string][]byte{attestdoc.AMDVCEK: s.VCEK(), attestdoc.AMDCertChain: s.CertChain(), attestdoc.AMDCRL: list}, err
}

// ComponentsSNP returns a report as the guest components write it, with or without a VCEK.
func ComponentsSNP(raw, vcek []byte) ([]byte, error) {
	document := map[string]any{"attestation_report": ReportFields(raw), "cert_chain": nil}
	if vcek != nil {
		document["cert_chain"] = []any{map[string]any{"cert_type": "VCEK", "data": numbers(vcek)}}
	}
	return json.Marshal(document)
}

// ReportFields returns the fields of a report as the guest components write them.
func ReportFields(raw []byte) map[string]any {
	little := binary.LittleEndian
	tcb := func(at int) any {
		return map[string]any{"fmc": nil, "bootloader": raw[at], "tee": raw[at+1], "snp": raw[at+6], "microcode": raw[at+7]}
	}
	version := func(at int) any {
		return map[string]any{"build": raw[at], "minor": raw[at+1], "major": raw[at+2]}
	}
	return map[string]any{
		"version": little.Uint32(raw), "guest_svn": little.Uint32(raw[4:]), "policy": little.Uint64(raw[8:]),
		"family_id": numbers(raw[0x10:0x20]), "image_id": numbers(raw[0x20:0x30]), "vmpl": little.Uint32(raw[0x30:]),
		"sig_algo": little.Uint32(raw[0x34:]), "current_tcb": tcb(0x38), "plat_info": little.Uint64(raw[0x40:]),
		"key_info": little.Uint32(raw[0x48:]), "report_data": numbers(raw[0x50:0x90]), "measurement": numbers(raw[0x90:0xC0]),
		"host_data": numbers(raw[0xC0:0xE0]), "id_key_digest": numbers(raw[0xE0:0x110]), "author_key_digest": numbers(raw[0x110:0x140]),
		"report_id": numbers(raw[0x140:0x160]), "report_id_ma": numbers(raw[0x160:0x180]), "reported_tcb": tcb(0x180),
		"cpuid_fam_id": raw[0x188], "cpuid_mod_id": raw[0x189], "cpuid_step": raw[0x18A], "chip_id": numbers(raw[0x1A0:0x1E0]),
		"committed_tcb": tcb(0x1E0), "current": version(0x1E8), "committed": version(0x1EC), "launch_tcb": tcb(0x1F0),
		"launch_mit_vector": little.Uint64(raw[0x1F8:]), "current_mit_vector": little.Uint64(raw[0x200:]),
		"signature": map[string]any{"r": numbers(raw[0x2A0:0x2E8]), "s": numbers(raw[0x2E8:0x330])},
	}
}

// numbers is a list of numbers, as Rust's serialization writes bytes.
func numbers(raw []byte) []int {
	made := make([]int, len(raw))
	for index, value := range raw {
		made[index] = int(value)
	}
	return made
}

func asPEM(certificate []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
}
