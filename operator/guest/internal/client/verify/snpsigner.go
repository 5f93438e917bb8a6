package verify

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/google/go-sev-guest/abi"
	"github.com/google/go-sev-guest/kds"
	spb "github.com/google/go-sev-guest/proto/sevsnp"
	"github.com/google/go-sev-guest/verify/trust"
)

// snpSigner is the key that signed a report of SNP, as AMD certifies it. The library compares neither its
// firmware nor its chip with the report's, and of revocations it looks only for those of processors' keys.
type snpSigner struct {
	kind  abi.ReportSigner
	line  string
	named *kds.Extensions
}

// signerOf returns the signer of a report whose signature and chain were verified.
func signerOf(report *spb.Report, chain *spb.CertificateChain) (snpSigner, error) {
	about, err := abi.ParseSignerInfo(report.GetSignerInfo())
	if err != nil {
		return snpSigner{}, err
	}
	encoded := chain.GetVcekCert()
	if about.SigningKey == abi.VlekReportSigner {
		encoded = chain.GetVlekCert()
	}
	certificate, err := trust.ParseCert(encoded)
	if err != nil {
		return snpSigner{}, err
	}
	named, err := kds.CertificateExtensions(certificate, about.SigningKey)
	if err != nil {
		return snpSigner{}, err
	}
	made := snpSigner{kind: about.SigningKey, named: named}
	if family := report.GetCpuid1EaxFms(); family != 0 {
		made.line = kds.ProductLineFromFms(family)
		return made, nil
	}
	product, err := kds.ParseProductName(named.ProductName, about.SigningKey)
	made.line = kds.ProductLine(product)
	return made, err
}

// fits returns an error unless the report is of the firmware and the chip of the key. Each level of the
// firmware has a key of its own: that of an old one may be known to others, who sign what they like with it.
func (s snpSigner) fits(report *spb.Report) error {
	if reported := kds.TCBVersion(report.GetReportedTcb()); reported != s.named.TCBVersion {
		return fmt.Errorf("its key is of other firmware (%s) than the report names (%s)",
			tcbText(kds.DecomposeTCBVersion(s.named.TCBVersion)), tcbText(kds.DecomposeTCBVersion(reported)))
	}
	// A host may hide the chip's id: it is zero then. A provider's key is of no chip.
	chip := report.GetChipId()
	if s.kind == abi.VcekReportSigner && !bytes.Equal(chip, make([]byte, len(chip))) && !bytes.Equal(chip, s.named.HWID) {
		return errors.New("its key is of another chip than the report names")
	}
	return nil
}

// isProvider reports whether the key is a provider's (VLEK).
func (s snpSigner) isProvider() bool { return s.kind == abi.VlekReportSigner }

// checkProvider returns an error unless AMD's list is there and does not have the certificate that signs
// those of providers' keys.
func (s snpSigner) checkProvider(source amdSource, want Expected) error {
	body, err := source.Get(kds.CrlLinkByKey(s.line, s.kind))
	if err != nil {
		return err
	}
	list, err := readList(body, want.Now)
	if err != nil {
		return err
	}
	roots := want.InsecureRoots[s.line]
	if want.InsecureRoots == nil {
		root, err := trust.GetDefaultRootCerts(s.line)
		if err != nil {
			return err
		}
		roots = []*trust.AMDRootCerts{root}
	}
	err = errors.New("no root signs providers' keys")
	for _, root := range roots {
		if root.ProductCerts.Ark == nil || root.ProductCerts.Asvk == nil {
			continue
		}
		if err = list.CheckSignatureFrom(root.ProductCerts.Ark); err != nil {
			err = fmt.Errorf("AMD's revocation list is not signed by its root: %w", err)
			continue
		}
		for _, each := range list.RevokedCertificateEntries {
			if each.SerialNumber.Cmp(root.ProductCerts.Asvk.SerialNumber) == 0 {
				return fmt.Errorf("AMD revoked the certificate of providers' keys at %s", each.RevocationTime.Format(time.RFC3339))
			}
		}
		return nil
	}
	return err
}
