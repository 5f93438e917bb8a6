package main

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"

	"github.com/google/go-sev-guest/verify/trust"
)

// readRoots reads root certificates that replace those of the vendors. AMD's are recognized by their names:
// ARK-PRODUCT signs SEV-PRODUCT and SEV-VLEK-PRODUCT; each other one is a root in Intel's place.
func readRoots(path string) (map[string][]*trust.AMDRootCerts, *x509.CertPool, error) {
	const option, remedy = "--insecure-development-root", "name a PEM file with ARK-PRODUCT and SEV-PRODUCT, or with a root in Intel's place"
	rest, err := readFile(option, path)
	if err != nil {
		return nil, nil, err
	}
	amd := map[string][]*trust.AMDRootCerts{}
	intel := x509.NewCertPool()
	read, others := 0, 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			return nil, nil, badInput(option, errors.New("it contains something other than certificates"), remedy)
		}
		read++
		name := certificate.Subject.CommonName
		if role, product, found := cutRole(name); found {
			place(amd, role, product, certificate)
			continue
		}
		others++
		intel.AddCert(certificate)
	}
	if read == 0 || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, nil, badInput(option, errors.New("it is not a list of certificates in PEM"), remedy)
	}
	for _, roots := range amd {
		if roots[0].ProductCerts.Ark == nil || roots[0].ProductCerts.Ask == nil && roots[0].ProductCerts.Asvk == nil {
			return nil, nil, badInput(option, errors.New("ARK-"+roots[0].ProductLine+" or what it signs is missing"), remedy)
		}
	}
	// A file for one vendor leaves the other's roots as they are.
	if len(amd) == 0 {
		amd = nil
	}
	if others == 0 {
		intel = nil
	}
	return amd, intel, nil
}

func cutRole(name string) (role, product string, found bool) {
	for _, role := range []string{"ARK-", "SEV-VLEK-", "SEV-"} {
		if product, found := strings.CutPrefix(name, role); found && product != "" {
			return role, product, true
		}
	}
	return "", "", false
}

func place(amd map[string][]*trust.AMDRootCerts, role, product string, certificate *x509.Certificate) {
	if amd[product] == nil {
		amd[product] = []*trust.AMDRootCerts{{Product: product, ProductLine: product, ProductCerts: &trust.ProductCerts{}}}
	}
	switch known := amd[product][0].ProductCerts; role {
	case "ARK-":
		known.Ark = certificate
	case "SEV-":
		known.Ask = certificate
	default:
		known.Asvk = certificate
	}
}
