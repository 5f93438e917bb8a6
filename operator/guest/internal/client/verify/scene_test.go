package verify

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-sev-guest/abi"

	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/evidence/teetest"
)

const (
	honestRules = "package agent_policy\n\ndefault CreateContainerRequest := false\n"
	honestPod   = `{"containers":[]}`
)

var honestMeasurement = fmt.Sprintf(`{"debug":false,"documents":{"pod.json":"%s"},"host":{"initdata":{"policy.rego":"%s"},"tee":"SNP","teeUnit":"Pod"},"version":"cloister.dev/measurement/v2"}`,
	digestOf(honestPod), digestOf(honestRules))

// initdataOf writes initdata as the operator does: docs/measurement.md.
func initdataOf(measurement, rules, more string) []byte {
	return []byte("version = \"0.1.0\"\nalgorithm = \"sha256\"\n\n[data]\n\"measurement.json\" = '''\n" + measurement +
		"'''\n\"policy.rego\" = '''\n" + rules + "\ncloister_pod := " + honestPod + "\n'''\n" + more)
}

var (
	now   = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)
	other = sha256.Sum256([]byte("other"))
)

// scene is an enclave on a processor with test keys, and what its client knows.
type scene struct {
	snp         *teetest.SNP
	tdx         *teetest.TDX
	isTDX       bool
	measurement string
	initdata    []byte
	report      teetest.SNPOptions
	quote       teetest.TDXOptions
	answers     teetest.PCS
	collateral  func(map[string][]byte)
	claim       func(*attestdoc.Claim)
	document    func(*attestdoc.Document)
	want        Expected
}

func newScene(t *testing.T) *scene {
	t.Helper()
	snp, err := teetest.NewSNP(now.AddDate(-1, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	tdx, err := teetest.NewTDX(now.AddDate(-1, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	made := &scene{
		snp: snp, tdx: tdx, measurement: honestMeasurement, initdata: initdataOf(honestMeasurement, honestRules, ""),
		report:     teetest.SNPOptions{Policy: abi.SnpPolicy{SMT: true}, Launch: bytes.Repeat([]byte{9}, 48)},
		quote:      teetest.TDXOptions{MRTD: bytes.Repeat([]byte{1}, 48)},
		answers:    teetest.PCS{At: now.Add(-time.Hour)},
		collateral: func(map[string][]byte) {}, claim: func(*attestdoc.Claim) {}, document: func(*attestdoc.Document) {},
		want: Expected{
			Key: sha256.Sum256([]byte("key")), Nonce: bytes.Repeat([]byte{7}, 32),
			Measurement: sha256.Sum256([]byte(honestMeasurement)), Launch: [][]byte{bytes.Repeat([]byte{9}, 48)}, Now: now, Rules: []string{digestOf(honestRules)},
			InsecureRoots: snp.Roots(), InsecureIntelRoots: tdx.Roots(),
		},
	}
	launch := bytes.Repeat([]byte{1}, 48)
	for index := range made.quote.Registers {
		made.quote.Registers[index] = bytes.Repeat([]byte{byte(index + 2)}, 48)
		if index < 3 {
			launch = append(launch, made.quote.Registers[index]...)
		}
	}
	digest := sha512.Sum384(launch)
	made.want.Launch = append(made.want.Launch, digest[:])
	return made
}

// made returns the document of the scene.
func (s *scene) made(t *testing.T) []byte {
	t.Helper()
	if s.isTDX { // whose field has room for a longer digest
		s.initdata = bytes.Replace(s.initdata, []byte(`algorithm = "sha256"`), []byte(`algorithm = "sha384"`), 1)
	}
	claim := attestdoc.Claim{
		Nonce: s.want.Nonce, Keys: attestdoc.CryptoMaterial{TLSSPKI: hex.EncodeToString(s.want.Key[:])},
		Measurement: []byte(s.measurement), Initdata: s.initdata,
	}
	s.claim(&claim)
	reportData, err := claim.ReportData()
	if err != nil {
		t.Fatal(err)
	}
	format, report, collateral := s.evidence(t, reportData)
	s.collateral(collateral)
	document, err := claim.Document(format, report, collateral)
	if err != nil {
		t.Fatal(err)
	}
	s.document(&document)
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (s *scene) evidence(t *testing.T, reportData []byte) (string, []byte, map[string][]byte) {
	t.Helper()
	var report []byte
	var collateral map[string][]byte
	var errs [2]error
	format := attestdoc.CPUSEVSNP
	if s.isTDX {
		format = attestdoc.CPUTDX
		digest := sha512.Sum384(s.initdata)
		s.quote.ReportData, s.quote.ConfigID = reportData, digest[:]
		report, errs[0] = s.tdx.Quote(s.quote)
		collateral, errs[1] = s.tdx.Collateral(s.answers)
	} else {
		digest := sha256.Sum256(s.initdata)
		s.report.ReportData, s.report.HostData = reportData, digest[:]
		report, errs[0] = s.snp.Report(s.report)
		collateral, errs[1] = s.snp.Collateral(s.answers.At)
	}
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return format, report, collateral
}

// measures lets the enclave run by another measurement, which its client expects.
func (s *scene) measures(document string) {
	s.measurement, s.want.Measurement = document, sha256.Sum256([]byte(document))
	s.initdata = []byte(document)
}

// check reads a document and checks it.
func check(document []byte, want Expected) error {
	read, err := Read(document)
	if err == nil {
		_, err = Check(read, want)
	}
	return err
}

// refused fails the test unless the error is a Failure of the class with a remedy.
func refused(t *testing.T, err error, class Class) {
	t.Helper()
	var failure *Failure
	if !errors.As(err, &failure) || failure.Class != class || failure.Step == "" || failure.Remedy == "" {
		t.Fatalf("got %v, want a failure of class %d", err, class)
	}
}
