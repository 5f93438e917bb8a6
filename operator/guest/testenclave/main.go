// Command testenclave is what tests of verifiers speak to: a TLS server with evidence of a processor of
// package teetest for its own key. Nothing of it is released.
//
// It writes one line of JSON when it serves, and obeys lines on its standard input: "initdata FILE"
// starts another machine, "unsigned" damages the evidence, "honest" does not.
package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/go-sev-guest/abi"

	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/evidence/initdata"
	"cloister.dev/guest/internal/evidence/teetest"
)

var launch = bytes.Repeat([]byte{9}, 48)

// machine is a confidential machine with an enclave.
type machine struct {
	processor *teetest.SNP
	server    *httptest.Server

	mutex       sync.Mutex
	initdata    []byte
	measurement string
	unsigned    bool
}

func main() {
	text := flag.String("initdata", "", "initdata of the machine, which has the measurement")
	roots := flag.String("roots", "", "file to write the root certificates to")
	flag.Parse()
	processor, err := teetest.NewSNP(time.Now().AddDate(0, -1, 0))
	must(err)
	must(os.WriteFile(*roots, processor.CertChain(), 0o600))
	made := &machine{processor: processor}
	must(made.load(*text))
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/cloister-attestation", made.attest)
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/stream", stream)
	made.server = httptest.NewTLSServer(mux)
	must(json.NewEncoder(os.Stdout).Encode(map[string]string{
		"host": strings.TrimPrefix(made.server.URL, "https://"), "launch": hex.EncodeToString(launch),
	}))
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		must(made.obey(lines.Text()))
		fmt.Println("done")
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func echo(writer http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err == nil {
		fmt.Fprintf(writer, "%s %s %s %s", request.Method, request.Host, request.URL, body)
	}
}

// stream responds with a line, and with the rest of a response when the client is gone.
func stream(writer http.ResponseWriter, request *http.Request) {
	fmt.Fprintln(writer, "first")
	_ = http.NewResponseController(writer).Flush()
	<-request.Context().Done()
}

func (m *machine) obey(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "initdata":
		return m.load(rest)
	case "unsigned", "honest":
		m.mutex.Lock()
		m.unsigned = word == "unsigned"
		m.mutex.Unlock()
		return nil
	}
	return fmt.Errorf("%q is not known", line)
}

func (m *machine) load(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	document, err := initdata.Parse(text)
	if err != nil {
		return err
	}
	measurement, err := document.Measurement()
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.initdata, m.measurement = text, measurement
	return err
}

// attest responds with the document for the server's key.
func (m *machine) attest(writer http.ResponseWriter, request *http.Request) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	nonce, err := hex.DecodeString(request.URL.Query().Get("nonce"))
	must(err)
	spki := sha256.Sum256(m.server.Certificate().RawSubjectPublicKeyInfo)
	claim := attestdoc.Claim{
		Nonce: nonce, Keys: attestdoc.CryptoMaterial{TLSSPKI: hex.EncodeToString(spki[:])}, Measurement: []byte(m.measurement), Initdata: m.initdata,
	}
	reportData, err := claim.ReportData()
	must(err)
	hostData := sha256.Sum256(m.initdata)
	report, err := m.processor.Report(teetest.SNPOptions{Policy: abi.SnpPolicy{SMT: true}, ReportData: reportData, Launch: launch, HostData: hostData[:]})
	must(err)
	if m.unsigned {
		report[0x50] ^= 1
	}
	collateral, err := m.processor.Collateral(time.Now().Add(-time.Hour))
	must(err)
	document, err := claim.Document(attestdoc.CPUSEVSNP, report, collateral)
	must(err)
	_ = json.NewEncoder(writer).Encode(document) // a client that is gone
}
