package teetest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"time"
)

// Levels and names of the test processor with TDX.
const (
	fmspc         = "50806f000000"
	pceID         = "0000"
	rootList      = "https://certificates.trustedservices.intel.com/IntelSGXRootCA.der"
	componentsSVN = 3
	pceSVN        = 11
	qeSVN         = 4
)

// TDX is a processor with TDX and its vendor.
type TDX struct {
	root, platform, signing, pck             *x509.Certificate
	rootKey, platformKey, signingKey, pckKey *ecdsa.PrivateKey
}

// NewTDX returns a processor whose certificates are valid from a time on, for ten years.
func NewTDX(from time.Time) (*TDX, error) {
	made := &TDX{}
	for _, key := range []**ecdsa.PrivateKey{&made.rootKey, &made.platformKey, &made.signingKey, &made.pckKey} {
		var err error
		if *key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, err
		}
	}
	sgx, err := sgxExtension()
	if err != nil {
		return nil, err
	}
	issue := func(name string, serial int64, authority bool, extra []pkix.Extension, key *ecdsa.PrivateKey, issuer *x509.Certificate, issuerKey *ecdsa.PrivateKey) (*x509.Certificate, error) {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name, Organization: []string{"Cloister's tests"}},
			NotBefore: from, NotAfter: from.AddDate(10, 0, 0), BasicConstraintsValid: true, IsCA: authority,
			KeyUsage: x509.KeyUsageDigitalSignature, CRLDistributionPoints: []string{rootList}, SubjectKeyId: []byte{byte(serial)},
			SignatureAlgorithm: x509.ECDSAWithSHA256, ExtraExtensions: extra,
		}
		if authority {
			template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
		}
		if issuer == nil {
			issuer = template
		}
		der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
		if err != nil {
			return nil, err
		}
		return x509.ParseCertificate(der)
	}
	if made.root, err = issue("Intel SGX Root CA", 1, true, nil, made.rootKey, nil, made.rootKey); err != nil {
		return nil, err
	}
	if made.platform, err = issue("Intel SGX PCK Platform CA", 2, true, nil, made.platformKey, made.root, made.rootKey); err != nil {
		return nil, err
	}
	if made.signing, err = issue("Intel SGX TCB Signing", 3, false, nil, made.signingKey, made.root, made.rootKey); err != nil {
		return nil, err
	}
	made.pck, err = issue("Intel SGX PCK Certificate", 4, false, []pkix.Extension{sgx}, made.pckKey, made.platform, made.platformKey)
	return made, err
}

// Roots is the vendor's root, for a verifier.
func (t *TDX) Roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(t.root)
	return pool
}

// named is one field of the extension of a PCK certificate.
type named struct {
	ID    asn1.ObjectIdentifier
	Value any
}

// sgxExtension returns the extension of a PCK certificate with the processor's names and levels.
func sgxExtension() (pkix.Extension, error) {
	id := asn1.ObjectIdentifier{1, 2, 840, 113741, 1, 13, 1}
	under := func(parts ...int) asn1.ObjectIdentifier {
		return append(append(asn1.ObjectIdentifier{}, id...), parts...)
	}
	levels := []named{}
	for component := 1; component <= 16; component++ {
		levels = append(levels, named{under(2, component), componentsSVN})
	}
	levels = append(levels, named{under(2, 17), pceSVN}, named{under(2, 18), bytes.Repeat([]byte{componentsSVN}, 16)})
	value, err := asn1.Marshal([]named{
		{under(1), make([]byte, 16)}, {under(2), levels}, {under(3), fromHex(pceID)}, {under(4), fromHex(fmspc)}, {under(5), asn1.Enumerated(1)},
	})
	return pkix.Extension{Id: id, Value: value}, err
}
