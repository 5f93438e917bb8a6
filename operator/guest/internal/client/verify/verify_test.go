package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-sev-guest/kds"

	"cloister.dev/guest/internal/evidence/attestdoc"
)

func TestHonestDocumentIsVerified(t *testing.T) {
	for _, isTDX := range []bool{false, true} {
		made := newScene(t)
		made.isTDX = isTDX
		if err := check(made.made(t), made.want); err != nil {
			t.Fatal(isTDX, err)
		}
	}
}

func TestTestKeysAreNotThoseOfTheMaker(t *testing.T) {
	for _, isTDX := range []bool{false, true} {
		made := newScene(t)
		made.isTDX = isTDX
		document := made.made(t)
		made.want.InsecureRoots, made.want.InsecureIntelRoots = nil, nil
		refused(t, check(document, made.want), ClassSignature)
	}
}

// bothFailures are those of every TEE.
var bothFailures = map[string]struct {
	class Class
	spoil func(*scene)
}{
	"another format":  {ClassDocument, func(s *scene) { s.document = func(d *attestdoc.Document) { d.Format = "x" } }},
	"body not base64": {ClassDocument, func(s *scene) { s.document = func(d *attestdoc.Document) { d.CPU.Report = "!" } }},
	"report cut":      {ClassDocument, func(s *scene) { s.document = func(d *attestdoc.Document) { d.CPU.Report = d.CPU.Report[:64] } }},
	"dummy":           {ClassNotConfidential, func(s *scene) { s.document = func(d *attestdoc.Document) { d.CPU.Format = attestdoc.CPUNone } }},
	"unknown evidence": {ClassDocument, func(s *scene) {
		s.document = func(d *attestdoc.Document) { d.CPU.Format = "https://cloister.dev/cpu-evidence/measured-boot/v1" }
	}},
	"before validity":             {ClassSignature, func(s *scene) { s.want.Now = now.AddDate(-5, 0, 0) }},
	"another launch":              {ClassLaunch, func(s *scene) { s.want.Launch = [][]byte{make([]byte, 48)} }},
	"no trusted launch":           {ClassLaunch, func(s *scene) { s.want.Launch = nil }},
	"another key":                 {ClassKey, func(s *scene) { s.claim = func(c *attestdoc.Claim) { c.Keys.TLSSPKI = hex.EncodeToString(other[:]) } }},
	"no key":                      {ClassKey, func(s *scene) { s.claim = func(c *attestdoc.Claim) { c.Keys.TLSSPKI = strings.Repeat("0", 64) } }},
	"another nonce":               {ClassFreshness, func(s *scene) { s.claim = func(c *attestdoc.Claim) { c.Nonce = other[:] } }},
	"no nonce":                    {ClassFreshness, func(s *scene) { s.claim = func(c *attestdoc.Claim) { c.Nonce = nil } }},
	"another initdata":            {ClassInitdata, func(s *scene) { s.document = func(d *attestdoc.Document) { d.Initdata = attestdoc.Pack([]byte("x")) } }},
	"no initdata":                 {ClassInitdata, func(s *scene) { s.document = func(d *attestdoc.Document) { d.Initdata = "" } }},
	"initdata of another enclave": {ClassInitdata, func(s *scene) { s.initdata = []byte("of another enclave") }},
	"other rules":                 {ClassInitdata, func(s *scene) { s.initdata = initdataOf(honestMeasurement, "default AllowAll := true", "") }},
	"another file":                {ClassInitdata, func(s *scene) { s.initdata = initdataOf(honestMeasurement, honestRules, "\"aa.toml\" = \"x\"\n") }},
	"unknown key": {ClassInitdata, func(s *scene) {
		s.initdata = append([]byte("x = 1\n"), initdataOf(honestMeasurement, honestRules, "")...)
	}},
	"another algorithm": {ClassInitdata, func(s *scene) {
		s.initdata = bytes.Replace(s.initdata, []byte(`"sha256"`), []byte(`"sha512"`), 1)
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
	"measurement":                     {ClassMeasurement, func(s *scene) { s.want.Measurement[0]++ }},
	"debug enclave":                   {ClassDebug, func(s *scene) { s.measures(strings.Replace(honestMeasurement, "false", "true", 1)) }},
	"documents that are not measured": {ClassMeasurement, func(s *scene) { s.measures(strings.Replace(honestMeasurement, "/v2", "/v1", 1)) }},
	"node is the unit":                {ClassNotConfidential, func(s *scene) { s.measures(strings.Replace(honestMeasurement, `"Pod"`, `"Node"`, 1)) }},
	"no rules":                        {ClassNotConfidential, func(s *scene) { s.measures(strings.Replace(honestMeasurement, "policy.rego", "aa.toml", 1)) }},
	"measures no object":              {ClassDocument, func(s *scene) { s.measures(`[]`) }},
	"no collateral":                   {ClassFirmware, func(s *scene) { s.collateral = onlyVCEK }},
	"revocation list of yesterday":    {ClassFirmware, func(s *scene) { s.answers.At = now.AddDate(0, -2, 0) }},
	"fetches fail": {ClassFirmware, func(s *scene) {
		s.collateral = onlyVCEK
		s.want.Fetch = func(string) (map[string][]string, []byte, error) { return nil, nil, errors.New("away") }
	}},
}

// onlyVCEK leaves only the certificate of the processor, with which the signature is checked.
func onlyVCEK(all map[string][]byte) {
	for name := range all {
		if name != attestdoc.AMDVCEK {
			delete(all, name)
		}
	}
}

func TestEachClassOfFailure(t *testing.T) {
	for name, test := range bothFailures {
		for tee, isTDX := range map[string]bool{"SNP": false, "TDX": true} {
			t.Run(name+" "+tee, func(t *testing.T) {
				made := newScene(t)
				made.isTDX = isTDX
				test.spoil(made)
				refused(t, check(made.made(t), made.want), test.class)
			})
		}
	}
}

func TestFailuresOfSNP(t *testing.T) {
	for name, test := range map[string]struct {
		class Class
		spoil func(*scene)
	}{
		"VMPL 1":         {ClassLaunch, func(s *scene) { s.report.Change = func(raw []byte) { raw[0x30] = 1 } }},
		"report data":    {ClassFreshness, func(s *scene) { s.report.Change = func(raw []byte) { raw[0x50]++ } }},
		"more data":      {ClassFreshness, func(s *scene) { s.report.Change = func(raw []byte) { raw[0x8F]++ } }},
		"host data":      {ClassInitdata, func(s *scene) { s.report.Change = func(raw []byte) { raw[0xC0]++ } }},
		"older key":      {ClassSignature, func(s *scene) { s.report.Change = func(raw []byte) { raw[0x187]++ } }},
		"other chip":     {ClassSignature, func(s *scene) { s.report.Change = func(raw []byte) { raw[0x1A0]++ } }},
		"debug policy":   {ClassDebug, func(s *scene) { s.report.Policy.Debug = true }},
		"migration":      {ClassDebug, func(s *scene) { s.report.Policy.MigrateMA = true }},
		"old firmware":   {ClassFirmware, func(s *scene) { s.want.MinimumTCB = kds.TCBParts{SnpSpl: 1} }},
		"no certificate": {ClassSignature, func(s *scene) { s.collateral = func(all map[string][]byte) { delete(all, attestdoc.AMDVCEK) } }},
		"another's list": {ClassFirmware, func(s *scene) {
			s.collateral = func(all map[string][]byte) {
				answers, _ := s.tdx.Collateral(s.answers)
				all[attestdoc.AMDCRL] = answers[attestdoc.IntelRootCRL]
			}
		}},
		"list of tomorrow": {ClassFirmware, func(s *scene) { s.answers.At = now.AddDate(0, 0, 1) }},
		"list is no list":  {ClassFirmware, func(s *scene) { s.collateral = func(all map[string][]byte) { all[attestdoc.AMDCRL] = []byte("x") } }},
		"revoked": {ClassFirmware, func(s *scene) {
			s.collateral = func(all map[string][]byte) { all[attestdoc.AMDCRL], _ = s.snp.RevocationList(now, true) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			made := newScene(t)
			test.spoil(made)
			refused(t, check(made.made(t), made.want), test.class)
		})
	}
}

func TestFailuresOfTDX(t *testing.T) {
	for name, test := range map[string]struct {
		class Class
		spoil func(*scene)
	}{
		"report data":        {ClassFreshness, func(s *scene) { s.quote.Change = func(signed []byte) { signed[48+0x208]++ } }},
		"configuration":      {ClassInitdata, func(s *scene) { s.quote.Change = func(signed []byte) { signed[48+0xB8]++ } }},
		"a register":         {ClassLaunch, func(s *scene) { s.quote.Change = func(signed []byte) { signed[48+0x148]++ } }},
		"debug":              {ClassDebug, func(s *scene) { s.quote.FlipAttributes = 1 }},
		"migratable":         {ClassDebug, func(s *scene) { s.quote.FlipAttributes = 1 << 29 }},
		"pages may be taken": {ClassDebug, func(s *scene) { s.quote.FlipAttributes = 1 << 28 }},
		"unknown feature":    {ClassDebug, func(s *scene) { s.quote.FlipXFAM = 1 << 20 }},
		"old level":          {ClassFirmware, func(s *scene) { s.answers.Status = "OutOfDate" }},
		"hardening needed":   {ClassFirmware, func(s *scene) { s.answers.Status = "SWHardeningNeeded" }},
		"revoked level":      {ClassFirmware, func(s *scene) { s.answers.Status = "Revoked" }},
		"old quoting":        {ClassFirmware, func(s *scene) { s.answers.QEStatus = "OutOfDate" }},
		"revoked processor":  {ClassFirmware, func(s *scene) { s.answers.RevokedPCK = true }},
		"revoked authority":  {ClassFirmware, func(s *scene) { s.answers.RevokedPlatform = true }},
		"another processor":  {ClassFirmware, func(s *scene) { s.answers.FMSPC = "000000000000" }},
		"version 5":          {ClassUnsupported, func(s *scene) { s.quote.Version5 = true }},
		"less than required": {ClassFirmware, func(s *scene) { s.quote.Change = func(signed []byte) { signed[48+2] = 0 } }},
	} {
		t.Run(name, func(t *testing.T) {
			made := newScene(t)
			made.isTDX = true
			test.spoil(made)
			refused(t, check(made.made(t), made.want), test.class)
		})
	}
}

// TestEachCollateralIsSigned changes a byte in the middle of each, and leaves each out.
func TestEachCollateralIsSigned(t *testing.T) {
	for _, isTDX := range []bool{false, true} {
		var names []string
		made := newScene(t)
		made.isTDX = isTDX
		made.collateral = func(all map[string][]byte) {
			for name := range all {
				names = append(names, name)
			}
		}
		made.made(t)
		for _, name := range names {
			if name == attestdoc.AMDCertChain {
				continue // the verifier has the vendor's certificates itself
			}
			for _, change := range []func(map[string][]byte){
				func(all map[string][]byte) { all[name][len(all[name])/2] ^= 1 },
				func(all map[string][]byte) { delete(all, name) },
			} {
				made.collateral = change
				var failure *Failure
				if err := check(made.made(t), made.want); !errors.As(err, &failure) || (failure.Class != ClassFirmware && failure.Class != ClassSignature) {
					t.Errorf("%s: got %v", name, err)
				}
			}
		}
	}
}

func TestMissingCollateralIsFetched(t *testing.T) {
	for _, isTDX := range []bool{false, true} {
		made := newScene(t)
		made.isTDX = isTDX
		var published map[string][]byte
		made.collateral = func(all map[string][]byte) {
			published = map[string][]byte{}
			for name, data := range all {
				published[name] = data
			}
			clear(all)
		}
		document := made.made(t)
		requests := 0
		made.want.Fetch = func(address string) (map[string][]string, []byte, error) {
			requests++
			if strings.Contains(address, "/vcek/v1/Milan/") && !strings.HasSuffix(address, "/crl") {
				return nil, published[attestdoc.AMDVCEK], nil
			}
			return source{published, nil}.get(address)
		}
		if err := check(document, made.want); err != nil || requests == 0 {
			t.Errorf("TDX %v: %v after %d requests", isTDX, err, requests)
		}
		made.want.Fetch, made.want.InsecureSkipRevocation = nil, true
		refused(t, check(document, made.want), map[bool]Class{false: ClassSignature, true: ClassFirmware}[isTDX])
	}
}

// TestEachByteOfEvidenceIsSigned changes bytes of the evidence after signing.
func TestEachByteOfEvidenceIsSigned(t *testing.T) {
	for _, isTDX := range []bool{false, true} {
		made := newScene(t)
		made.isTDX = isTDX
		document := made.made(t)
		parts, err := attestdoc.Parse(document)
		if err != nil {
			t.Fatal(err)
		}
		signedBytes := 0x2A0 + 48
		if isTDX {
			signedBytes = 632
		}
		for at := 0; at < signedBytes; at += 7 {
			report := bytes.Clone(parts.Report)
			report[at] ^= 1
			changed := parts
			changed.Report = report
			check, _ := checkerOf(parts.CPUFormat)
			var failure *Failure
			if _, err := check(changed, made.want); !errors.As(err, &failure) || !slices.Contains([]Class{ClassSignature, ClassDocument, ClassFirmware, ClassUnsupported}, failure.Class) {
				t.Fatalf("byte %d: %v", at, err)
			}
		}
	}
}

// TestNothingFollowsThePod has rules of the host's behind the description of the Pod, of a document that
// the client takes on the operator's word: of two rules of a name either admits.
func TestNothingFollowsThePod(t *testing.T) {
	for name, more := range map[string]string{
		"another rule": "\n\nExecProcessRequest if true", "another constant": "\nx := 1", "a comment": " # more", "another value": " | {}",
	} {
		made := newScene(t)
		measurement := strings.Replace(honestMeasurement, digestOf(honestPod), digestOf(honestPod+more), 1)
		made.measurement, made.want.Measurement = measurement, sha256.Sum256([]byte(measurement))
		made.initdata = bytes.Replace(initdataOf(measurement, honestRules, ""), []byte(honestPod), []byte(honestPod+more), 1)
		t.Run(name, func(t *testing.T) { refused(t, check(made.made(t), made.want), ClassInitdata) })
	}
}
