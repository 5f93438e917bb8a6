package conformance

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-sev-guest/verify/trust"

	"cloister.dev/guest/internal/client/bundle"
	"cloister.dev/guest/internal/client/verify"
	"cloister.dev/guest/internal/evidence/attestdoc"
)

// FuzzEvidence lets the verifier read any evidence and any collateral of both kinds, with the roots of the
// vectors, so that signed parts are read too: nothing panics, what is refused has a class, and nothing is
// verified but the honest report's signed bytes.
func FuzzEvidence(f *testing.F) {
	documents, reports := map[bool]attestdoc.Document{}, map[bool][]byte{}
	clients := map[bool]verify.Expected{false: clientOf(f, snp), true: clientOf(f, tdx)}
	for isTDX, name := range map[bool]string{false: snp, true: tdx} {
		var read bundle.Bundle
		var document attestdoc.Document
		text, err := os.ReadFile(filepath.Join(folder, "base-"+name+".json"))
		if err == nil {
			err = json.Unmarshal(text, &read)
		}
		if err == nil {
			err = json.Unmarshal(read.Document, &document)
		}
		if err != nil {
			f.Fatal(err)
		}
		documents[isTDX] = document
		report, err := base64.StdEncoding.DecodeString(document.CPU.Report)
		if err != nil {
			f.Fatal(err)
		}
		reports[isTDX] = report
		f.Add(isTDX, report, uint8(0), []byte{})
		for index, each := range document.Collateral {
			data, err := base64.StdEncoding.DecodeString(each.Data)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(isTDX, report, uint8(index), data)
		}
	}
	f.Fuzz(func(t *testing.T, isTDX bool, report []byte, index uint8, data []byte) {
		document := documents[isTDX]
		document.CPU.Report = base64.StdEncoding.EncodeToString(report)
		document.Collateral = append([]attestdoc.Collateral{}, document.Collateral...)
		if len(data) > 0 {
			document.Collateral[int(index)%len(document.Collateral)].Data = base64.StdEncoding.EncodeToString(data)
		}
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		switch code := codeOf(check(text, clients[isTDX])); {
		case code < 0:
			t.Error("a failure without a class")
		case code == 0 && !bytes.HasPrefix(report, reports[isTDX][:signedSize[isTDX]]):
			t.Error("verified, with signed bytes that nobody signed")
		}
	})
}

// signedSize is how many bytes of evidence the processor signs.
var signedSize = map[bool]int{false: 0x2A0, true: 632}

// clientOf is the client of a base.
func clientOf(f *testing.F, name string) verify.Expected {
	f.Helper()
	var clients map[string]client
	text, err := os.ReadFile(filepath.Join(folder, "clients.json"))
	if err == nil {
		err = json.Unmarshal(text, &clients)
	}
	rest, second := os.ReadFile(filepath.Join(folder, "roots.pem"))
	if err := errors.Join(err, second); err != nil {
		f.Fatal(err)
	}
	known, roots := clients[name], []*x509.Certificate{}
	for block, rest := pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			f.Fatal(err)
		}
		roots = append(roots, certificate)
	}
	digest := func(text string) [32]byte {
		data, err := hex.DecodeString(text)
		if err != nil || len(data) != 32 {
			f.Fatal(text)
		}
		return [32]byte(data)
	}
	launch, err := hex.DecodeString(known.Platform[0])
	if err != nil {
		f.Fatal(err)
	}
	made := verify.Expected{
		Nonce: nonce, Key: digest(known.SPKI), Measurement: digest(known.Measurement[len("sha256:"):]), Launch: [][]byte{launch}, Now: now,
		InsecureRoots: map[string][]*trust.AMDRootCerts{"Milan": {{
			Product: "Milan", ProductLine: "Milan", ProductCerts: &trust.ProductCerts{Ask: roots[0], Ark: roots[1]},
		}}},
		InsecureIntelRoots: x509.NewCertPool(),
	}
	made.InsecureIntelRoots.AddCert(roots[2])
	return made
}
