package attestdoc

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
)

func claim() Claim {
	return Claim{
		Nonce:       bytes.Repeat([]byte{7}, NonceSize),
		Keys:        CryptoMaterial{TLSSPKI: strings.Repeat("ab", 32), HPKEX25519: strings.Repeat("cd", 32)},
		Measurement: []byte(`{"version":"x"}`), Initdata: []byte("initdata"), DeviceEvidence: []byte(`{"nvidia":{}}`),
	}
}

func written(t *testing.T, made Claim) string {
	t.Helper()
	document, err := made.Document(CPUSEVSNP, []byte("report"), map[string][]byte{AMDVCEK: []byte("certificate"), AMDCRL: []byte("list")})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestReportDataIsPinned has digests that sha256sum gave for the bytes that docs/measurement.md names.
func TestReportDataIsPinned(t *testing.T) {
	for name, each := range map[string]struct {
		change func(*Claim)
		want   string
	}{
		"everything": {func(*Claim) {}, "47e894f0c5e24d20049d1eb9b8a005b2f0b152c77af347d7b12c68865a813374"},
		"least":      {func(c *Claim) { c.Nonce, c.DeviceEvidence, c.Keys.HPKEX25519 = nil, nil, "" }, "d9b999f6399ccfca2d133cd52c2704b06205029f0cdf1dea8b6c120e43c75e30"},
	} {
		made := claim()
		each.change(&made)
		bound, err := made.ReportData()
		if want := each.want + strings.Repeat("00", 32); err != nil || hex.EncodeToString(bound) != want {
			t.Errorf("%s: %x %v", name, bound, err)
		}
	}
}

func TestADocumentIsReadBack(t *testing.T) {
	for name, change := range map[string]func(*Claim){
		"everything": func(*Claim) {},
		"least": func(c *Claim) {
			c.Nonce, c.Initdata, c.DeviceEvidence, c.Keys.HPKEX25519 = nil, nil, nil, ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			made := claim()
			change(&made)
			parts, err := Parse([]byte(written(t, made)))
			if err != nil {
				t.Fatal(err)
			}
			bound, _ := made.ReportData()
			same := bytes.Equal(parts.Nonce, made.Nonce) && bytes.Equal(parts.ReportData, bound) && parts.Keys == made.Keys &&
				bytes.Equal(parts.Measurement, made.Measurement) && bytes.Equal(parts.Initdata, made.Initdata) &&
				bytes.Equal(parts.DeviceEvidence, made.DeviceEvidence) && string(parts.Report) == "report" &&
				string(parts.Collateral[AMDVCEK]) == "certificate" && len(parts.Collateral) == 2
			if !same || hex.EncodeToString(parts.TLSSPKI[:]) != made.Keys.TLSSPKI || hex.EncodeToString(parts.HPKE) != made.Keys.HPKEX25519 {
				t.Errorf("%+v", parts)
			}
		})
	}
}

func TestWhatAClaimBindsIsNeverTheSame(t *testing.T) {
	seen := map[string]string{}
	for name, change := range map[string]func(*Claim){
		"honest":          func(*Claim) {},
		"another nonce":   func(c *Claim) { c.Nonce = bytes.Repeat([]byte{8}, NonceSize) },
		"no nonce":        func(c *Claim) { c.Nonce = nil },
		"another key":     func(c *Claim) { c.Keys.TLSSPKI = strings.Repeat("ac", 32) },
		"another HPKE":    func(c *Claim) { c.Keys.HPKEX25519 = strings.Repeat("ce", 32) },
		"no HPKE":         func(c *Claim) { c.Keys.HPKEX25519 = "" },
		"keys exchanged":  func(c *Claim) { c.Keys.TLSSPKI, c.Keys.HPKEX25519 = c.Keys.HPKEX25519, c.Keys.TLSSPKI },
		"another device":  func(c *Claim) { c.DeviceEvidence = []byte("x") },
		"no device":       func(c *Claim) { c.DeviceEvidence = nil },
		"other code":      func(c *Claim) { c.Measurement = []byte("{}") },
		"parts exchanged": func(c *Claim) { c.Measurement, c.DeviceEvidence = c.DeviceEvidence, c.Measurement },
	} {
		made := claim()
		change(&made)
		bound, err := made.ReportData()
		if err != nil {
			t.Fatal(err)
		}
		if other, found := seen[string(bound)]; found {
			t.Errorf("%s and %s bind the same", name, other)
		}
		seen[string(bound)] = name
		if device, err := made.DeviceChallenge(); err != nil || bytes.Equal(device, bound[:32]) {
			t.Errorf("%s: %x %v", name, device, err)
		}
	}
}

func TestDocumentsAreReadStrictly(t *testing.T) {
	text := written(t, claim())
	nonce, digest := strings.Repeat("07", 32), "\"crypto_material\":\""+digestOf(claim().Keys.Bytes())
	other := func(keys string) string { return base64.StdEncoding.EncodeToString([]byte(keys)) }
	honest := base64.StdEncoding.EncodeToString(claim().Keys.Bytes())
	for name, each := range map[string]struct{ old, replacement, want string }{
		"format":                    {Format, strings.Replace(Format, "v3", "v2", 1), "format"},
		"unknown CPU format":        {CPUSEVSNP, CPUSEVSNP + "1", "cpu_evidence.format"},
		"unknown field":             {`{"format"`, `{"more":1,"format"`, "more"},
		"given twice":               {`{"format"`, `{"format":"x","format"`, "given twice"},
		"another case":              {`{"format"`, `{"Format"`, "format: missing"},
		"missing":                   {`"challenge"`, `"challenges"`, "challenges"},
		"null":                      {`"collateral":[`, `"collateral":null,"x":[`, "x"},
		"empty nonce":               {nonce, "", "challenge.nonce"},
		"short nonce":               {nonce, nonce[2:], "challenge.nonce"},
		"upper case":                {`"report_data":"`, `"report_data":"A`, "report_data"},
		"zero nonce":                {nonce, strings.Repeat("0", 64), "stands for no nonce"},
		"another nonce":             {nonce, strings.Repeat("08", 32), "challenge.report_data"},
		"another algorithm":         {`/report-data/v1`, `/report-data/v2`, "report_data_algorithm"},
		"another digest":            {digest, `"crypto_material":"` + strings.Repeat("0", 64), "cpu_evidence.endorsed"},
		"another measurement":       {`\"x\"`, `\"y\"`, "cpu_evidence.endorsed"},
		"keys not base64":           {honest, honest + "?", "crypto_material: not base64"},
		"keys with spaces":          {honest, other(`{ "tls_spki_sha256":"` + strings.Repeat("ab", 32) + `"}`), "canonical form"},
		"keys in another order":     {honest, other(`{"tls_spki_sha256":"","hpke_x25519":"00"}`), "canonical form"},
		"no TLS key":                {honest, other(`{"hpke_x25519":"00"}`), "tls_spki_sha256: missing"},
		"short TLS key":             {honest, other(`{"tls_spki_sha256":"00"}`), "tls_spki_sha256"},
		"short HPKE key":            {honest, other(`{"hpke_x25519":"00","tls_spki_sha256":"` + strings.Repeat("ab", 32) + `"}`), "hpke_x25519"},
		"unknown key":               {honest, other(`{"x":1}`), "crypto_material"},
		"initdata not gzip":         {Pack([]byte("initdata")), "AAAA", "initdata: not gzip"},
		"more after initdata":       {Pack([]byte("initdata")), base64.StdEncoding.EncodeToString(append(gunzipped(t, "initdata"), 0)), "bytes follow"},
		"initdata empty":            {Pack([]byte("initdata")), "", "initdata"},
		"initdata too large":        {Pack([]byte("initdata")), Pack(make([]byte, MaxDocument+1)), "larger than allowed"},
		"report empty":              {`"report_base64":"cmVwb3J0"`, `"report_base64":""`, "report_base64: empty"},
		"report with line breaks":   {`cmVwb3J0`, `cmVw\nb3J0`, "line breaks"},
		"unknown collateral":        {AMDVCEK, "amd-vcex", "collateral[0].type"},
		"collateral given twice":    {AMDCRL, AMDVCEK, "given twice"},
		"collateral with more":      {`{"type":"amd-vcek"`, `{"more":1,"type":"amd-vcek"`, "more"},
		"collateral is not base64":  {`"data":"`, `"data":"?`, "collateral[0].data"},
		"text after it":             {`"}]}`, `"}]}{}`, "text follows"},
		"not JSON":                  {`{"format"`, `"format"`, "text follows"},
		"not UTF-8":                 {"version", "versi\xffn", "UTF-8"},
		"larger than 1 MiB":         {`{"format"`, strings.Repeat(" ", MaxDocument) + `{"format"`, "larger than allowed"},
		"collateral is not a list":  {`"collateral":[`, `"collateral":"`, "not"},
		"report data is not hashed": {`"report_data":"`, `"report_data":"00`, "report_data"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(text, each.old, each.replacement, 1)
			if changed == text {
				t.Fatal("nothing was changed")
			}
			if _, err := Parse([]byte(changed)); err == nil || !strings.Contains(err.Error(), each.want) {
				t.Errorf("got %v, want %q", err, each.want)
			}
		})
	}
}

func gunzipped(t *testing.T, text string) []byte {
	t.Helper()
	packed, err := base64.StdEncoding.DecodeString(Pack([]byte(text)))
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func TestEveryRequiredFieldIsRequired(t *testing.T) {
	var whole map[string]any
	if err := json.Unmarshal([]byte(written(t, claim())), &whole); err != nil {
		t.Fatal(err)
	}
	challenge, cpu := whole["challenge"].(map[string]any), whole["cpu_evidence"].(map[string]any)
	for _, object := range []map[string]any{whole, challenge, cpu, cpu["endorsed"].(map[string]any), whole["collateral"].([]any)[0].(map[string]any)} {
		for field, value := range object {
			for state, set := range map[string]func(){"missing": func() { delete(object, field) }, "null": func() { object[field] = nil }} {
				set()
				text, _ := json.Marshal(whole)
				// A document without initdata is well-formed: it is the evidence that says whether there is one.
				if _, err := Parse(text); err == nil && (field != "initdata" || state != "missing") {
					t.Errorf("%s: %s", field, state)
				}
				object[field] = value
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	made, _ := claim().Document(CPUNone, []byte("x"), nil)
	text, _ := json.Marshal(made)
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		parts, err := Parse(text)
		if err == nil && (len(parts.ReportData) != ReportDataSize || len(parts.Report) == 0) {
			t.Errorf("%+v", parts)
		}
	})
}
