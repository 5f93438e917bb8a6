package verify

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-sev-guest/abi"
	"github.com/google/go-sev-guest/kds"
	spb "github.com/google/go-sev-guest/proto/sevsnp"
	"github.com/google/go-sev-guest/verify"

	"cloister.dev/guest/internal/evidence/attestdoc"
)

// signed are the fields of evidence, after its signature was verified.
type signed struct {
	reportData, launch, hostData []byte
	// algorithm is the hash whose digest of the initdata hostData must be.
	algorithm string
}

// checkSNP verifies a report of SNP up to AMD, and what it reports of the machine.
func checkSNP(read attestdoc.Parts, want Expected) (signed, error) {
	if len(read.Report) != abi.ReportSize {
		return signed{}, malformed(fmt.Errorf("cpu_evidence.report_base64: %d bytes, a report of SNP has %d", len(read.Report), abi.ReportSize))
	}
	report, err := abi.ReportToProto(read.Report)
	if err != nil {
		return signed{}, malformed(err)
	}
	if err := checkProductLine(report); err != nil {
		return signed{}, err
	}
	if err := checkSNPSignature(report, read, want); err != nil {
		return signed{}, err
	}
	policy, err := abi.ParseSnpPolicy(report.GetPolicy())
	if err != nil {
		return signed{}, malformed(err)
	}
	if policy.Debug || policy.MigrateMA {
		return signed{}, refuse(ClassDebug, "guest policy", "the host may read the machine's memory, by debugging or migration", "use a machine that was started without them")
	}
	if report.GetVmpl() != 0 {
		return signed{}, refuse(ClassLaunch, "privilege level", fmt.Sprintf("the report is of VMPL %d", report.GetVmpl()), "use a machine whose guest runs at VMPL 0")
	}
	// The host may replace the firmware while a machine runs: an old one may have opened what it launched.
	for _, each := range []struct {
		when  string
		level uint64
	}{{"is", report.GetReportedTcb()}, {"that launched the machine was", report.GetLaunchTcb()}} {
		if found := kds.DecomposeTCBVersion(kds.TCBVersion(each.level)); !kds.TCBPartsLE(want.MinimumTCB, found) {
			return signed{}, refuse(ClassFirmware, "TCB", fmt.Sprintf("the firmware %s older than you require: %s", each.when, tcbText(found)),
				"have the node's firmware updated and the enclave relaunched, or lower --minimum-tcb if you accept what is known of it")
		}
	}
	want.pass("guest policy", fmt.Sprintf("%#x, neither debugging nor migration; VMPL 0; %s", report.GetPolicy(), tcbText(kds.DecomposeTCBVersion(kds.TCBVersion(report.GetReportedTcb())))))
	return signed{report.GetReportData(), report.GetMeasurement(), report.GetHostData(), "sha256"}, nil
}

func tcbText(found kds.TCBParts) string {
	return fmt.Sprintf("bootloader %d, TEE %d, SNP %d, microcode %d", found.BlSpl, found.TeeSpl, found.SnpSpl, found.UcodeSpl)
}

// productLines are those whose certificates the library reads. Those of Turin name the chip by 8 bytes, not
// 64, and their levels have another part and another order: the library takes them for damaged.
var productLines = []string{"Milan", "Genoa"}

// checkProductLine refuses processors of other product lines. A report of version 2 names none: then the
// certificate of its key decides.
func checkProductLine(report *spb.Report) error {
	family := report.GetCpuid1EaxFms()
	if family == 0 {
		return nil
	}
	line := kds.ProductLineFromFms(family)
	if slices.Contains(productLines, line) {
		return nil
	}
	number, model, _ := abi.FmsFromCpuid1Eax(family)
	if line == "Unknown" {
		line = "unknown"
	}
	return refuse(ClassUnsupported, "evidence", fmt.Sprintf("this program does not read certificates of processors of family %#x, model %#x (%s)", number, model, line),
		"use a processor of the product line Milan or Genoa, or the cloister-verify of a release that names yours in docs/verify.md")
}

// checkSNPSignature verifies the signature, the chain and that AMD has not revoked it.
func checkSNPSignature(report *spb.Report, read attestdoc.Parts, want Expected) error {
	held := source{read.Collateral, want.Fetch}
	chain := &spb.CertificateChain{VcekCert: read.Collateral[attestdoc.AMDVCEK], VlekCert: read.Collateral[attestdoc.AMDVLEK]}
	if chain.VcekCert == nil && chain.VlekCert == nil && want.Fetch != nil {
		_, fetched, err := want.Fetch(vcekAddress(report))
		if err != nil {
			return refuse(ClassSignature, "signature", "the certificate of the processor's key cannot be fetched: "+err.Error(), "allow requests to kdsintf.amd.com, or ask the enclave's operator for collateral in the document")
		}
		chain.VcekCert = fetched
	}
	options := &verify.Options{DisableCertFetching: true, Now: want.Now, TrustedRoots: want.InsecureRoots}
	evidence := &spb.Attestation{Report: report, CertificateChain: chain}
	if err := verify.SnpAttestation(evidence, options); err != nil {
		return refuse(ClassSignature, "signature", err.Error(), "trust nothing that this enclave reports: the evidence is not that of a processor of AMD, or was changed; if the document has no certificate, allow requests to kdsintf.amd.com")
	}
	signer, err := signerOf(report, chain)
	if err == nil {
		err = signer.fits(report)
	}
	if err != nil {
		return refuse(ClassSignature, "signature", err.Error(), "trust nothing that this enclave reports: anyone who knows a key of old firmware can sign that the firmware is new")
	}
	want.pass("signature", "the report, by the key of this processor, up to AMD's root")
	if want.InsecureSkipRevocation {
		return nil
	}
	revocation := &currentList{source: amdSource{held}, now: want.Now}
	options.CheckRevocations, options.Getter = true, revocation
	err = verify.SnpAttestation(evidence, options)
	if revocation.err != nil {
		err = revocation.err
	}
	if err == nil && signer.isProvider() {
		err = signer.checkProvider(amdSource{held}, want)
	}
	if err != nil {
		return refuse(ClassFirmware, "revocation", err.Error(), "allow requests to kdsintf.amd.com, ask the enclave's operator for collateral in the document, or ask AMD why the certificate was revoked")
	}
	want.pass("revocation", "AMD's list, valid at "+want.Now.UTC().Format(time.RFC3339))
	return nil
}

// vcekAddress returns where AMD publishes the certificate of the key that signed a report.
func vcekAddress(report *spb.Report) string {
	return kds.VCEKCertURL(kds.ProductLineFromFms(report.GetCpuid1EaxFms()), report.GetChipId(), kds.TCBVersion(report.GetReportedTcb()))
}

// currentList refuses revocation lists that are not valid now: an old one does not know what was revoked
// since. The library checks only who signed them.
type currentList struct {
	source amdSource
	now    time.Time
	err    error
}

// Get implements the library's interface.
func (l *currentList) Get(address string) ([]byte, error) {
	body, err := l.source.Get(address)
	if err == nil && bytes.HasSuffix([]byte(address), []byte("/crl")) {
		_, err = readList(body, l.now)
	}
	l.err = err
	return body, err
}

// readList returns a revocation list that is valid now.
func readList(body []byte, now time.Time) (*x509.RevocationList, error) {
	list, err := x509.ParseRevocationList(body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("AMD's revocation list cannot be read: %w", err)
	case now.Before(list.ThisUpdate):
		return nil, errors.New("AMD's revocation list is dated in the future")
	case now.After(list.NextUpdate):
		return nil, fmt.Errorf("AMD's revocation list was to be replaced at %s", list.NextUpdate.Format(time.RFC3339))
	}
	return list, nil
}
