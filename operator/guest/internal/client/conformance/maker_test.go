package conformance

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"os"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/google/go-sev-guest/abi"
	"github.com/google/go-sev-guest/kds"

	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/evidence/initdata"
	"cloister.dev/guest/internal/evidence/teetest"
)

// Names of bases.
const (
	snp  = "snp"
	tdx  = "tdx"
	none = "none"
)

// level is that of the test processor's firmware.
var level = kds.TCBParts{BlSpl: 3, TeeSpl: 1, SnpSpl: 8, UcodeSpl: 115}

var (
	now   = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)
	nonce = bytes.Repeat([]byte{7}, attestdoc.NonceSize)
)

// maker makes documents of enclaves on processors with test keys.
type maker struct {
	t           *testing.T
	snp         *teetest.SNP
	tdx         *teetest.TDX
	certificate *x509.Certificate
	foreign     *x509.Certificate // of another party, with the same names
	initdata    string            // of an enclave with SNP, as the operator writes it
	measurement string
	// answers are the vendors', by their content: they sign each once.
	answers map[string]map[string][]byte
}

// newMaker returns the same maker always, but once in a process: randomness is fixed, and that of the
// library with AMD's test keys continues from call to call.
func newMaker(t *testing.T) *maker {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 1)
	snp, first := teetest.NewSNPOf(now.AddDate(-1, 0, 0), level)
	tdx, second := teetest.NewTDX(now.AddDate(-1, 0, 0))
	text, third := os.ReadFile("../../../../../tests/data/measurement/initdata-enclave.toml")
	if err := errors.Join(first, second, third); err != nil {
		t.Fatal(err)
	}
	document, err := initdata.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return &maker{
		t: t, snp: snp, tdx: tdx, certificate: certificate(t), foreign: certificate(t), initdata: string(text),
		measurement: document.Data[initdata.MeasurementFile], answers: map[string]map[string][]byte{},
	}
}

// certificate returns a certificate with a key of its own.
func certificate(t *testing.T) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "web.acme.example.com"}, DNSNames: []string{"web.acme.example.com"},
		NotBefore: now.AddDate(0, -1, 0), NotAfter: now.AddDate(0, 2, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// scene is one document before it is made.
type scene struct {
	tee         string
	measurement string
	initdata    string
	claim       attestdoc.Claim
	report      teetest.SNPOptions
	quote       teetest.TDXOptions
	collateral  map[string][]byte
	answers     teetest.PCS
	listAt      time.Time
	revoked     bool
	// evidence is in place of what the test processor signs.
	evidence []byte
}

// scene returns the honest scene of a base.
func (m *maker) scene(tee string) *scene {
	made := &scene{
		tee: tee, measurement: m.measurement, initdata: m.initdata, listAt: now.Add(-time.Hour), answers: teetest.PCS{At: now.Add(-time.Hour)},
		report: teetest.SNPOptions{Policy: abi.SnpPolicy{SMT: true}, Launch: bytes.Repeat([]byte{9}, 48)},
		quote:  teetest.TDXOptions{MRTD: bytes.Repeat([]byte{1}, 48)},
		claim:  attestdoc.Claim{Nonce: nonce, Keys: attestdoc.CryptoMaterial{TLSSPKI: hex.EncodeToString(m.spki())}},
	}
	for index := range made.quote.Registers {
		made.quote.Registers[index] = bytes.Repeat([]byte{byte(index + 2)}, 48)
	}
	switch tee {
	case tdx:
		made.change(`"tee":"SNP"`, `"tee":"TDX"`)
		made.change("kata-qemu-snp", "kata-qemu-tdx")
		made.initdata = strings.Replace(made.initdata, `algorithm = "sha256"`, `algorithm = "sha384"`, 1)
	case none:
		made.measurement = strings.Replace(made.measurement, `"tee":"SNP","teeUnit":"Pod"`, `"tee":"None"`, 1)
		made.initdata = ""
	}
	return made
}

// change changes the measurement, and the initdata that carries it.
func (s *scene) change(old, replacement string) {
	changed := strings.Replace(s.measurement, old, replacement, 1)
	s.initdata = strings.Replace(s.initdata, s.measurement, changed, 1)
	s.measurement = changed
}

func (m *maker) spki() []byte { return spkiOf(m.certificate) }

func spkiOf(certificate *x509.Certificate) []byte {
	digest := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return digest[:]
}

// make returns the document of a scene.
func (m *maker) make(s *scene) []byte {
	m.t.Helper()
	s.claim.Measurement = []byte(s.measurement)
	if s.initdata != "" {
		s.claim.Initdata = []byte(s.initdata)
	}
	reportData, err := s.claim.ReportData()
	if err != nil {
		m.t.Fatal(err)
	}
	format, report := m.sign(s, reportData)
	if s.evidence != nil {
		report = s.evidence
	}
	if s.collateral == nil {
		s.collateral = m.collateral(s)
	}
	document, err := s.claim.Document(format, report, s.collateral)
	if err != nil {
		m.t.Fatal(err)
	}
	return marshal(m.t, document)
}

func (m *maker) sign(s *scene, reportData []byte) (format string, report []byte) {
	m.t.Helper()
	var err error
	switch s.tee {
	case tdx:
		digest := sha512.Sum384([]byte(s.initdata))
		s.quote.ReportData = reportData
		if s.quote.ConfigID == nil {
			s.quote.ConfigID = digest[:]
		}
		format = attestdoc.CPUTDX
		report, err = m.tdx.Quote(s.quote)
	case snp:
		digest := sha256.Sum256([]byte(s.initdata))
		s.report.ReportData = reportData
		if s.report.HostData == nil {
			s.report.HostData = digest[:]
		}
		format = attestdoc.CPUSEVSNP
		report, err = m.snp.Report(s.report)
	default:
		format, report = attestdoc.CPUNone, reportData
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return format, report
}

// collateral returns what the vendors answer in a scene.
func (m *maker) collateral(s *scene) map[string][]byte {
	m.t.Helper()
	key := fmt.Sprint(s.tee, s.answers, s.listAt, s.revoked)
	if m.answers[key] != nil {
		return maps.Clone(m.answers[key])
	}
	var made map[string][]byte
	var err error
	switch s.tee {
	case tdx:
		made, err = m.tdx.Collateral(s.answers)
	case snp:
		made = map[string][]byte{attestdoc.AMDVCEK: m.snp.VCEK(), attestdoc.AMDCertChain: m.snp.CertChain()}
		made[attestdoc.AMDCRL], err = m.snp.RevocationList(s.listAt, s.revoked)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.answers[key] = made
	return maps.Clone(made)
}

// launch returns the launch measurement of a base.
func (m *maker) launch(tee string) []byte {
	made := m.scene(tee)
	if tee != tdx {
		return made.report.Launch
	}
	hash := sha512.New384()
	hash.Write(made.quote.MRTD)
	for _, register := range made.quote.Registers[:3] {
		hash.Write(register)
	}
	return hash.Sum(nil)
}
