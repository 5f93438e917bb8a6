package teetest

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"time"

	"github.com/google/go-sev-guest/kds"
	sevtest "github.com/google/go-sev-guest/testing"
)

// Genoa is a processor of the product line Genoa with a firmware of 2024: the only one that clients of
// the service name tinfoil accept.
type Genoa struct{ *SNP }

// genoaTCB are the levels of its firmware, which its certificate names.
var genoaTCB = kds.TCBParts{BlSpl: 7, SnpSpl: 14, UcodeSpl: 0x48}

// NewGenoa returns a processor whose certificates are valid from a time on.
func NewGenoa(from time.Time) (*Genoa, error) {
	tcb, err := kds.ComposeTCBParts(genoaTCB)
	if err != nil {
		return nil, err
	}
	builder := &sevtest.AmdSignerBuilder{
		Keys: sevtest.DefaultAmdKeys(), ProductName: "Genoa-B1", TCB: tcb,
		ArkCreationTime: from, AskCreationTime: from, AsvkCreationTime: from, VcekCreationTime: from, VlekCreationTime: from,
	}
	signer, err := builder.TestOnlyCertChain()
	if err != nil {
		return nil, err
	}
	// AMD's have only these extensions, and the chip's id in one of them as it is.
	extensions := sevtest.CustomExtensions(genoaTCB, make([]byte, 64), "", "Genoa")
	for index := range extensions {
		if extensions[index].Id.Equal(kds.OidHwid) {
			extensions[index].Value = make([]byte, 64)
		}
	}
	template := &x509.Certificate{
		SerialNumber: signer.Vcek.SerialNumber, Subject: signer.Vcek.Subject, SignatureAlgorithm: x509.SHA384WithRSAPSS,
		NotBefore: from, NotAfter: from.AddDate(7, 0, 0), ExtraExtensions: extensions,
	}
	issuer := *signer.Ask
	issuer.SubjectKeyId = nil
	der, err := x509.CreateCertificate(rand.Reader, template, &issuer, signer.Keys.Vcek.Public(), signer.Keys.Ask)
	if err != nil {
		return nil, err
	}
	signer.Vcek, err = x509.ParseCertificate(der)
	return &Genoa{&SNP{signer, uint64(tcb)}}, err
}

// Report returns a signed report of its firmware.
func (g *Genoa) Report(options SNPOptions) ([]byte, error) {
	options.Change = func(raw []byte) {
		raw[0x188], raw[0x189], raw[0x18A] = 0x19, 0x11, 1
		binary.LittleEndian.PutUint64(raw[0x40:], 3)
		for _, at := range []int{0x1E8, 0x1EC} { // firmware 1.55, build 21
			raw[at], raw[at+1], raw[at+2] = 21, 55, 1
		}
	}
	return g.SNP.Report(options)
}

// Certificates are the root and the intermediate certificate in PEM.
func (g *Genoa) Certificates() (ark, ask []byte) {
	return asPEM(g.signer.Ark.Raw), asPEM(g.signer.Ask.Raw)
}
