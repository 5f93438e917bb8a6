// Command testpredicate writes what an enclave of the service name tinfoil serves without a nonce, and
// what a client must know of its vendor, as JSON. The agent's own code makes the document; a processor
// of package teetest stands in for the machine's. Nothing of it is released.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-sev-guest/abi"

	"cloister.dev/guest/internal/evidence/attestation"
	"cloister.dev/guest/internal/evidence/teetest"
)

var (
	initdata = []byte("initdata")
	launch   = bytes.Repeat([]byte{9}, 48)
	tlsKey   = strings.Repeat("1a", 32)
	hpkeKey  = strings.Repeat("2b", 32)
)

func main() {
	directory, err := os.MkdirTemp("", "predicate-")
	must(err)
	defer os.RemoveAll(directory)
	key, hpke := filepath.Join(directory, "tls.spki"), filepath.Join(directory, "hpke.pub")
	must(errors.Join(os.WriteFile(key, []byte(tlsKey), 0o600), os.WriteFile(hpke, []byte(hpkeKey), 0o600)))
	processor, err := teetest.NewGenoa(time.Now().AddDate(0, -1, 0))
	must(err)
	service := httptest.NewServer(machine{processor})
	defer service.Close()
	attester, err := attestation.New(attestation.Settings{
		Name: attestation.PredicateService, TEE: attestation.TEESNP, Service: service.URL,
		Measurement: []byte("{}"), Initdata: initdata, Key: key, HPKE: hpke,
	})
	must(err)
	served := httptest.NewRecorder()
	attester.ServeHTTP(served, httptest.NewRequest(http.MethodGet, "/.well-known/tinfoil-attestation", nil))
	ark, ask := processor.Certificates()
	must(json.NewEncoder(os.Stdout).Encode(map[string]string{
		"document": served.Body.String(), "ark": string(ark), "ask": string(ask), "tls": tlsKey, "hpke": hpkeKey,
		"vcek": base64.StdEncoding.EncodeToString(processor.VCEK()),
	}))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// machine is the attestation service of the machine.
type machine struct{ processor *teetest.Genoa }

// ServeHTTP responds as the guest components do.
func (m machine) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	reportData, err := base64.RawURLEncoding.DecodeString(request.URL.Query().Get("runtime_data"))
	must(err)
	hostData := sha256.Sum256(initdata)
	report, err := m.processor.Report(teetest.SNPOptions{Policy: abi.SnpPolicy{SMT: true}, ReportData: reportData, Launch: launch, HostData: hostData[:]})
	must(err)
	evidence, err := teetest.ComponentsSNP(report, nil)
	must(err)
	_, err = writer.Write(evidence)
	must(err)
}
