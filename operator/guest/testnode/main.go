// Command testnode stands in for a node with SNP: its attestation service on a socket, with evidence that
// a processor of package teetest signs, and the vendor's service over HTTP. It writes one line of JSON
// when it serves. Nothing of it is released.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/go-sev-guest/abi"

	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/evidence/teetest"
)

func main() {
	socket := flag.String("socket", "", "where the attestation service listens")
	roots := flag.String("roots", "", "file to write the root certificates to")
	flag.Parse()
	processor, err := teetest.NewSNP(time.Now().AddDate(0, -1, 0))
	must(err)
	must(os.WriteFile(*roots, processor.CertChain(), 0o600))
	collateral, err := processor.Collateral(time.Now().Add(-time.Hour))
	must(err)
	service, err := net.Listen("unix", *socket)
	must(err)
	must(os.Chmod(*socket, 0o777)) // processes of Pods have users of their own
	vendor, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	go func() { must(http.Serve(vendor, published(collateral))) }()
	must(json.NewEncoder(os.Stdout).Encode(map[string]string{"maker": "http://" + vendor.Addr().String()}))
	must(http.Serve(service, machine{processor}))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// machine is the attestation service.
type machine struct{ processor *teetest.SNP }

// ServeHTTP responds as the guest components do.
func (m machine) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	reportData, err := base64.RawURLEncoding.DecodeString(request.URL.Query().Get("runtime_data"))
	if err != nil || request.URL.Path != "/aa/evidence" {
		writer.WriteHeader(http.StatusNotFound)
		return
	}
	report, err := m.processor.Report(teetest.SNPOptions{Policy: abi.SnpPolicy{SMT: true}, ReportData: reportData, Launch: bytes.Repeat([]byte{9}, 48)})
	must(err)
	evidence, err := teetest.ComponentsSNP(report, nil)
	must(err)
	_, _ = writer.Write(evidence) // a client that is gone
}

// published responds as AMD's service does.
func published(collateral map[string][]byte) http.HandlerFunc {
	return func(writer http.ResponseWriter, request *http.Request) {
		kind := attestdoc.AMDVCEK
		switch path := request.URL.Path; {
		case !strings.HasPrefix(path, "/vcek/v1/Milan/"):
			writer.WriteHeader(http.StatusNotFound)
			return
		case strings.HasSuffix(path, "/crl"):
			kind = attestdoc.AMDCRL
		case strings.HasSuffix(path, "/cert_chain"):
			kind = attestdoc.AMDCertChain
		}
		_, _ = writer.Write(collateral[kind]) // a client that is gone
	}
}
