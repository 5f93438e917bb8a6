package verify

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-sev-guest/abi"
	spb "github.com/google/go-sev-guest/proto/sevsnp"
	sevtest "github.com/google/go-sev-guest/testing"
	"github.com/google/go-sev-guest/verify/trust"

	"cloister.dev/guest/internal/attestation"
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

var now = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)

// scene is an enclave on a processor with test keys, and what its client knows.
type scene struct {
	signer      *sevtest.AmdSigner
	measurement string
	initdata    []byte
	policy      abi.SnpPolicy
	change      func(raw []byte)
	evidence    func(map[string]any)
	document    func(*attestation.Document)
	want        Expected
}

func newScene(t *testing.T) *scene {
	t.Helper()
	signer, err := sevtest.DefaultTestOnlyCertChain("Milan-B1", now.AddDate(-1, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	return &scene{
		signer: signer, measurement: honestMeasurement, initdata: initdataOf(honestMeasurement, honestRules, ""),
		policy:   abi.SnpPolicy{SMT: true},
		change:   func([]byte) {},
		evidence: func(map[string]any) {},
		document: func(*attestation.Document) {},
		want: Expected{
			Key: sha256.Sum256([]byte("key")), Nonce: bytes.Repeat([]byte{7}, 32),
			Measurement: sha256.Sum256([]byte(honestMeasurement)), Launch: [][]byte{bytes.Repeat([]byte{9}, 48)}, Now: now, Rules: []string{digestOf(honestRules)},
			InsecureRoots: map[string][]*trust.AMDRootCerts{"Milan": {{
				Product: "Milan", ProductLine: "Milan", ProductCerts: &trust.ProductCerts{Ark: signer.Ark, Ask: signer.Ask, Asvk: signer.Asvk},
			}}},
		},
	}
}

// made returns the document of the scene.
func (s *scene) made(t *testing.T) []byte {
	t.Helper()
	digest := sha256.Sum256([]byte(s.measurement))
	report := sevtest.CreateRawReport(&sevtest.TestReportOptions{
		ReportData: attestation.ReportData(s.want.Key, digest[:], s.want.Nonce), Version: 3,
		FMS: abi.MaskedCpuid1EaxFromSevProduct(&spb.SevProduct{Name: spb.SevProduct_SEV_PRODUCT_MILAN}),
	})
	raw := report[:abi.ReportSize]
	binary.LittleEndian.PutUint64(raw[0x08:], abi.SnpPolicyToBytes(s.policy))
	copy(raw[0x90:], bytes.Repeat([]byte{9}, 48))
	hostData := sha256.Sum256(s.initdata)
	copy(raw[0xC0:], hostData[:])
	s.change(raw)
	first, second, err := s.signer.Sign(abi.SignedComponent(raw))
	if err != nil {
		t.Fatal(err)
	}
	if err := abi.SetSignature(first, second, raw); err != nil {
		t.Fatal(err)
	}
	evidence := map[string]any{
		"attestation_report": asComponents(raw),
		"cert_chain":         []any{map[string]any{"cert_type": "VCEK", "data": numbers(s.signer.Vcek.Raw)}},
	}
	s.evidence(evidence)
	document := attestation.Document{
		Format: formatSNP, Body: packed(marshal(t, evidence)), Measurement: s.measurement,
		Initdata: packed(s.initdata), Nonce: hex.EncodeToString(s.want.Nonce),
	}
	s.document(&document)
	return marshal(t, document)
}

// asComponents writes a report as the guest components do.
func asComponents(raw []byte) map[string]any {
	little := binary.LittleEndian
	tcb := func(at int) any {
		return map[string]any{"fmc": nil, "bootloader": raw[at], "tee": raw[at+1], "snp": raw[at+6], "microcode": raw[at+7]}
	}
	version := func(at int) any {
		return map[string]any{"build": raw[at], "minor": raw[at+1], "major": raw[at+2]}
	}
	return map[string]any{
		"version": little.Uint32(raw), "guest_svn": little.Uint32(raw[4:]), "policy": little.Uint64(raw[8:]),
		"family_id": numbers(raw[0x10:0x20]), "image_id": numbers(raw[0x20:0x30]), "vmpl": little.Uint32(raw[0x30:]),
		"sig_algo": little.Uint32(raw[0x34:]), "current_tcb": tcb(0x38), "plat_info": little.Uint64(raw[0x40:]),
		"key_info": little.Uint32(raw[0x48:]), "report_data": numbers(raw[0x50:0x90]), "measurement": numbers(raw[0x90:0xC0]),
		"host_data": numbers(raw[0xC0:0xE0]), "id_key_digest": numbers(raw[0xE0:0x110]), "author_key_digest": numbers(raw[0x110:0x140]),
		"report_id": numbers(raw[0x140:0x160]), "report_id_ma": numbers(raw[0x160:0x180]), "reported_tcb": tcb(0x180),
		"cpuid_fam_id": raw[0x188], "cpuid_mod_id": raw[0x189], "cpuid_step": raw[0x18A], "chip_id": numbers(raw[0x1A0:0x1E0]),
		"committed_tcb": tcb(0x1E0), "current": version(0x1E8), "committed": version(0x1EC), "launch_tcb": tcb(0x1F0),
		"launch_mit_vector": little.Uint64(raw[0x1F8:]), "current_mit_vector": little.Uint64(raw[0x200:]),
		"signature": map[string]any{"r": numbers(raw[0x2A0:0x2E8]), "s": numbers(raw[0x2E8:0x330])},
	}
}

func numbers(raw []byte) []int {
	made := make([]int, len(raw))
	for index, value := range raw {
		made[index] = int(value)
	}
	return made
}

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func packed(text []byte) string {
	var made bytes.Buffer
	writer := gzip.NewWriter(&made)
	_, _ = writer.Write(text)
	_ = writer.Close()
	return base64.StdEncoding.EncodeToString(made.Bytes())
}

// refused fails the test unless the error is a Failure of the class with a remedy.
func refused(t *testing.T, err error, class Class) {
	t.Helper()
	var failure *Failure
	if !errors.As(err, &failure) || failure.Class != class || failure.Step == "" || failure.Remedy == "" {
		t.Fatalf("got %v, want a failure of class %d", err, class)
	}
}

func TestHonestDocumentIsVerified(t *testing.T) {
	made := newScene(t)
	if err := Check(made.made(t), made.want); err != nil {
		t.Fatal(err)
	}
}

func TestTestKeysAreNotThoseOfTheMaker(t *testing.T) {
	made := newScene(t)
	document := made.made(t)
	made.want.InsecureRoots = nil
	refused(t, Check(document, made.want), ClassSignature)
}

func TestEachClassOfFailure(t *testing.T) {
	for name, test := range map[string]struct {
		class Class
		spoil func(*scene)
	}{
		"another format":    {ClassDocument, func(s *scene) { s.document = func(d *attestation.Document) { d.Format = "x" } }},
		"body not gzip":     {ClassDocument, func(s *scene) { s.document = func(d *attestation.Document) { d.Body = "AAAA" } }},
		"body not base64":   {ClassDocument, func(s *scene) { s.document = func(d *attestation.Document) { d.Body = "!" } }},
		"body too large":    {ClassDocument, func(s *scene) { s.document = func(d *attestation.Document) { d.Body = packed(make([]byte, 1<<20+1)) } }},
		"unknown evidence":  {ClassDocument, func(s *scene) { s.evidence = func(e map[string]any) { e["more"] = 1 } }},
		"no report":         {ClassDocument, func(s *scene) { s.evidence = func(e map[string]any) { delete(e, "attestation_report") } }},
		"dummy":             {ClassNotConfidential, func(s *scene) { s.document = func(d *attestation.Document) { d.Format = formatDummy } }},
		"TDX":               {ClassUnsupported, func(s *scene) { s.document = func(d *attestation.Document) { d.Format = formatTDX } }},
		"no certificate":    {ClassSignature, func(s *scene) { s.evidence = func(e map[string]any) { e["cert_chain"] = nil } }},
		"before validity":   {ClassSignature, func(s *scene) { s.want.Now = now.AddDate(-5, 0, 0) }},
		"another launch":    {ClassLaunch, func(s *scene) { s.want.Launch = [][]byte{make([]byte, 48)} }},
		"no trusted launch": {ClassLaunch, func(s *scene) { s.want.Launch = nil }},
		"VMPL 1":            {ClassLaunch, func(s *scene) { s.change = func(raw []byte) { raw[0x30] = 1 } }},
		"another key":       {ClassKey, func(s *scene) { s.change = func(raw []byte) { raw[0x50]++ } }},
		"no key":            {ClassKey, func(s *scene) { s.change = func(raw []byte) { clear(raw[0x50:0x70]) } }},
		"report's nonce":    {ClassFreshness, func(s *scene) { s.change = func(raw []byte) { raw[0x70]++ } }},
		"document's nonce":  {ClassFreshness, func(s *scene) { s.document = func(d *attestation.Document) { d.Nonce = strings.Repeat("0", 64) } }},
		"no nonce":          {ClassFreshness, func(s *scene) { s.document = func(d *attestation.Document) { d.Nonce = "" } }},
		"another initdata":  {ClassInitdata, func(s *scene) { s.document = func(d *attestation.Document) { d.Initdata = packed([]byte("x")) } }},
		"no initdata":       {ClassInitdata, func(s *scene) { s.document = func(d *attestation.Document) { d.Initdata = "" } }},
		"foreign initdata":  {ClassInitdata, func(s *scene) { s.initdata = []byte("of another enclave") }},
		"other rules":       {ClassInitdata, func(s *scene) { s.initdata = initdataOf(honestMeasurement, "default AllowAll := true", "") }},
		"another file":      {ClassInitdata, func(s *scene) { s.initdata = initdataOf(honestMeasurement, honestRules, "\"aa.toml\" = \"x\"\n") }},
		"unknown key": {ClassInitdata, func(s *scene) {
			s.initdata = append([]byte("x = 1\n"), initdataOf(honestMeasurement, honestRules, "")...)
		}},
		"another version":    {ClassInitdata, func(s *scene) { s.initdata = bytes.Replace(s.initdata, []byte("0.1.0"), []byte("0.2.0"), 1) }},
		"measured elsewhere": {ClassInitdata, func(s *scene) { s.initdata = initdataOf("{}", honestRules, "# "+honestMeasurement+"\n") }},
		"rules without it":   {ClassInitdata, func(s *scene) { s.initdata = bytes.Replace(s.initdata, []byte("cloister_pod"), []byte("y"), 1) }},
		"rules for another Pod": {ClassInitdata, func(s *scene) {
			s.initdata = bytes.Replace(s.initdata, []byte(honestPod), []byte(`{"containers":[{}]}`), 1)
		}},
		"more after the Pod": {ClassInitdata, func(s *scene) {
			s.initdata = bytes.Replace(s.initdata, []byte(honestPod), []byte(honestPod+"\nSetPolicyRequest := true"), 1)
		}},
		"unpublished rules": {ClassNotConfidential, func(s *scene) { s.want.Rules = nil }},
		"a file is missing": {ClassInitdata, func(s *scene) {
			s.measures(strings.Replace(honestMeasurement, `{"policy`, `{"aa.toml":"sha256:00","policy`, 1))
			s.initdata = initdataOf(s.measurement, honestRules, "")
		}},
		"host data":                       {ClassInitdata, func(s *scene) { s.change = func(raw []byte) { raw[0xC0]++ } }},
		"measurement":                     {ClassMeasurement, func(s *scene) { s.want.Measurement[0]++ }},
		"debug policy":                    {ClassDebug, func(s *scene) { s.policy.Debug = true }},
		"migration":                       {ClassDebug, func(s *scene) { s.policy.MigrateMA = true }},
		"debug enclave":                   {ClassDebug, func(s *scene) { s.measures(strings.Replace(honestMeasurement, "false", "true", 1)) }},
		"documents that are not measured": {ClassMeasurement, func(s *scene) { s.measures(strings.Replace(honestMeasurement, "/v2", "/v1", 1)) }},
		"node is the unit":                {ClassNotConfidential, func(s *scene) { s.measures(strings.Replace(honestMeasurement, `"Pod"`, `"Node"`, 1)) }},
		"no rules":                        {ClassNotConfidential, func(s *scene) { s.measures(strings.Replace(honestMeasurement, "policy.rego", "aa.toml", 1)) }},
		"measures no object":              {ClassDocument, func(s *scene) { s.measures(`[]`) }},
	} {
		t.Run(name, func(t *testing.T) {
			made := newScene(t)
			test.spoil(made)
			refused(t, Check(made.made(t), made.want), test.class)
		})
	}
}

func (s *scene) measures(document string) {
	s.measurement, s.want.Measurement = document, sha256.Sum256([]byte(document))
	s.initdata = []byte(document)
}

// TestEachFieldOfTheReportIsSigned changes every field of the evidence's JSON after signing.
func TestEachFieldOfTheReportIsSigned(t *testing.T) {
	for field := range asComponents(make([]byte, abi.ReportSize)) {
		t.Run(field, func(t *testing.T) {
			made := newScene(t)
			made.evidence = func(evidence map[string]any) {
				report := evidence["attestation_report"].(map[string]any)
				report[field] = damaged(t, report[field])
			}
			var failure *Failure
			if err := Check(made.made(t), made.want); !errors.As(err, &failure) || (failure.Class != ClassSignature && failure.Class != ClassDocument) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

// damaged returns the value with one bit changed.
func damaged(t *testing.T, value any) any {
	t.Helper()
	switch held := value.(type) {
	case []int:
		held[0] ^= 1
		return held
	case map[string]any:
		for _, name := range []string{"microcode", "build", "r"} {
			if inner, found := held[name]; found {
				held[name] = damaged(t, inner)
				return held
			}
		}
	case uint8:
		return held ^ 1
	case uint32:
		return held ^ 1
	case uint64:
		return held ^ 1
	}
	t.Fatal(fmt.Sprintf("a value of type %T cannot be damaged", value))
	return nil
}

func TestDocumentsAreReadStrictly(t *testing.T) {
	made := newScene(t)
	text := string(made.made(t))
	for name, changed := range map[string]string{
		"unknown field": strings.Replace(text, "{", `{"more":1,`, 1),
		"given twice":   strings.Replace(text, "{", `{"format":"x",`, 1),
		"another case":  strings.Replace(text, `"format"`, `"Format"`, 1) + " ",
		"text after":    text + "{}",
		"not JSON":      text[1:],
		"empty":         "",
		"too large":     text + strings.Repeat(" ", 1<<20),
	} {
		t.Run(name, func(t *testing.T) { refused(t, Check([]byte(changed), made.want), ClassDocument) })
	}
}
