package conformance

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cloister.dev/guest/internal/client/verify"
	"cloister.dev/guest/internal/evidence/attestdoc"
)

// vectors returns all vectors, in the order of the file.
func (m *maker) vectors(bases map[string]base) []vector {
	made := []vector{
		{Name: "snp", About: "an honest enclave with SNP", Base: snp},
		{Name: "tdx", About: "an honest enclave with TDX", Base: tdx},
		{Name: "none", About: "an honest enclave without a TEE", Base: none, Verdict: verdict{Code: verify.ClassNotConfidential}},
	}
	for _, tee := range []string{snp, tdx} {
		made = append(made, m.fields(tee, bases)...)
		made = append(made, m.clients(tee)...)
		made = append(made, m.scenes(tee, bases)...)
	}
	made = append(made, texts(bases)...)
	made = append(made, m.reportFields(bases)...)
	made = append(made, m.quoteFields(bases)...)
	made = append(made, m.sizes(bases)...)
	made = append(made, m.signedScenes(bases)...)
	made = append(made, m.tdBits(bases)...)
	made = append(made, m.reals(bases)...)
	return append(made, m.unread(bases)...)
}

// fields damages each field of the document: gone, of another type, null, empty, and one character of it.
func (m *maker) fields(tee string, bases map[string]base) []vector {
	m.t.Helper()
	var made []vector
	document := parsed(m.t, bases[tee].bundle.Document)
	for _, pointer := range leaves("", document) {
		name := tee + strings.ReplaceAll(pointer, "/", ".")
		value := valueAt(document, pointer)
		optional := pointer == "/challenge/nonce" || pointer == "/initdata" // absent means something else
		code := func(ifOptional verify.Class) verdict {
			if optional {
				return verdict{Code: ifOptional}
			}
			return verdict{Code: verify.ClassDocument}
		}
		made = append(made,
			// Without initdata the report's field is that of another one; without a nonce the report data is.
			vector{Name: name + " missing", About: "the field is not there", Base: tee, Remove: []string{pointer}, Verdict: code(absent(pointer))},
			vector{Name: name + " number", About: "the field is a number", Base: tee, Set: []edit{{pointer, json.RawMessage("1")}}, Verdict: verdict{Code: verify.ClassDocument}},
			vector{Name: name + " null", About: "the field is null", Base: tee, Set: []edit{{pointer, json.RawMessage("null")}}, Verdict: verdict{Code: verify.ClassDocument}},
			vector{Name: name + " empty", About: "the field is an empty text", Base: tee, Set: []edit{{pointer, json.RawMessage(`""`)}}, Verdict: verdict{Code: verify.ClassDocument}},
		)
		if text, isText := value.(string); isText {
			made = append(made, vector{
				Name: name + " changed", About: "one character of the field is another one", Base: tee,
				Set: []edit{{pointer, marshal(m.t, changed(text))}}, Verdict: verdict{Code: changedClass(tee, pointer)},
			})
		}
	}
	return made
}

// absent is the class of a document without an optional field.
func absent(pointer string) verify.Class {
	if pointer == "/initdata" {
		return verify.ClassInitdata
	}
	return verify.ClassDocument // the report data is then that of no nonce
}

// changedClass is the class of a field with another character. What is compared inside of the document is
// malformed, and so is a report of SNP, whose middle is zero; in a quote of TDX a signature is there.
func changedClass(tee, pointer string) verify.Class {
	if tee == tdx && pointer == "/cpu_evidence/report_base64" {
		return verify.ClassSignature
	}
	return verify.ClassDocument
}

// changed returns a text with another character in its middle, which is of the same kind.
func changed(text string) string {
	at := len(text) / 2
	for text[at] == '"' || text[at] == '=' || text[at] == ':' || text[at] == '\n' {
		at++
	}
	replacement := byte('a')
	if text[at] == 'a' {
		replacement = 'b'
	}
	return text[:at] + string(replacement) + text[at+1:]
}

// leaves are the pointers of all values that hold no others; of collateral, its types and data are apart.
func leaves(pointer string, tree any) []string {
	object, isObject := tree.(map[string]any)
	if !isObject {
		if _, isList := tree.([]any); isList {
			return nil
		}
		return []string{pointer}
	}
	var found []string
	for _, name := range slices.Sorted(maps.Keys(object)) {
		found = append(found, leaves(pointer+"/"+name, object[name])...)
	}
	return found
}

func valueAt(tree any, pointer string) any {
	for _, part := range strings.Split(pointer, "/")[1:] {
		tree = tree.(map[string]any)[part]
	}
	return tree
}

// clients are honest documents for clients that know something else.
func (m *maker) clients(tee string) []vector {
	other := strings.Repeat("5a", 32)
	made := []vector{
		{Name: "another nonce", About: "the client sent another nonce", Client: &client{Nonce: other}, Verdict: verdict{Code: verify.ClassFreshness}},
		{Name: "another key", About: "the connection's key is another one", Client: &client{SPKI: hex.EncodeToString(spkiOf(m.foreign)), Certificate: m.foreign.Raw}, Verdict: verdict{Code: verify.ClassKey}},
		{Name: "another measurement", About: "the client computed another measurement", Client: &client{Measurement: "sha256:" + other}, Verdict: verdict{Code: verify.ClassMeasurement}},
		{Name: "another platform", About: "the client trusts another launch measurement", Client: &client{Platform: []string{strings.Repeat("5a", 48)}}, Verdict: verdict{Code: verify.ClassLaunch}},
		{Name: "no platform", About: "the client trusts no launch measurement", Client: &client{Platform: []string{}}, Verdict: verdict{Code: verify.ClassLaunch}},
		{Name: "the makers' roots", About: "the client trusts AMD and Intel, who did not sign it", Client: &client{Roots: "makers"}, Verdict: verdict{Code: verify.ClassSignature}},
		{Name: "too early", About: "the client's clock is before the certificates", Client: &client{Time: "2024-01-01T00:00:00Z"}, Verdict: verdict{Code: verify.ClassSignature}},
		{Name: "old collateral", About: "the collateral was to be replaced before the client's time", Client: &client{Time: "2027-03-01T00:00:00Z"}, Verdict: verdict{Code: verify.ClassFirmware}},
		{Name: "collateral of the future", About: "the collateral is issued after the client's time", Client: &client{Time: "2026-10-01T00:00:00Z"}, Verdict: verdict{Code: verify.ClassFirmware}},
	}
	for index := range made {
		made[index].Base, made[index].Name = tee, tee+" "+made[index].Name
	}
	return made
}

// texts are documents that are not of the form at all.
func texts(bases map[string]base) []vector {
	format := `"format":"` + attestdoc.Format + `"`
	var made []vector
	for name, each := range map[string]struct{ about, from, to string }{
		"unknown field":             {"the document has a field that it does not know", "{", `{"more":1,`},
		"unknown field inside":      {"the challenge has a field that it does not know", `"challenge":{`, `"challenge":{"more":1,`},
		"unknown field of evidence": {"the evidence has a field that it does not know", `"cpu_evidence":{`, `"cpu_evidence":{"more":1,`},
		"field twice":               {"the format is given twice", "{", "{" + format + ","},
		"nonce twice":               {"the nonce is given twice", `"challenge":{`, `"challenge":{"nonce":"` + strings.Repeat("5a", 32) + `",`},
		"field in another case":     {"the format's name begins with a capital letter", `"format"`, `"Format"`},
		"no object":                 {"the document is no JSON", "{", "["},
		"older format":              {"the format is of another version", attestdoc.Format, "https://cloister.dev/attestation/v2"},
		"another evidence":          {"the evidence's format is not known", attestdoc.CPUSEVSNP, "https://example.com/evidence/v1"},
		"capital digits":            {"the nonce has capital digits", strings.Repeat("07", 32), strings.Repeat("07", 31) + "0A"},
		"evidence of another TEE":   {"the report of SNP claims to be a quote of TDX", attestdoc.CPUSEVSNP, attestdoc.CPUTDX},
		"evidence of none":          {"the report of SNP claims to be of no TEE", attestdoc.CPUSEVSNP, attestdoc.CPUNone},
	} {
		class := verify.ClassDocument
		if name == "evidence of none" {
			class = verify.ClassNotConfidential
		}
		made = append(made, vector{Name: "text: " + name, About: each.about, Base: snp, Replace: []string{each.from, each.to}, Verdict: verdict{Code: class}})
	}
	slices.SortFunc(made, func(left, right vector) int { return strings.Compare(left.Name, right.Name) })
	return made
}

// reportFieldOffsets are the fields of SNP's report.
var reportFieldOffsets = []struct {
	name string
	at   int
}{
	{"guest_svn", 0x04}, {"policy", 0x08}, {"family_id", 0x10}, {"image_id", 0x20}, {"vmpl", 0x30}, {"current_tcb", 0x38},
	{"platform_info", 0x40}, {"report_data", 0x50}, {"measurement", 0x90}, {"host_data", 0xC0}, {"id_key_digest", 0xE0},
	{"author_key_digest", 0x110}, {"report_id", 0x140}, {"report_id_ma", 0x160}, {"reported_tcb", 0x180}, {"chip_id", 0x1A0},
	{"committed_tcb", 0x1E0}, {"current_build", 0x1E8}, {"committed_build", 0x1EC}, {"launch_tcb", 0x1F0}, {"signature_r", 0x2A0}, {"signature_s", 0x2E8},
}

// reportFields changes a bit of each field of SNP's report, after it was signed.
func (m *maker) reportFields(bases map[string]base) []vector {
	var made []vector
	for _, field := range reportFieldOffsets {
		made = append(made, m.flipped(bases, snp, "report's "+field.name, field.at, verify.ClassSignature))
	}
	return made
}

// quoteFields does the same to TDX's quote, whose fields follow a header of 48 bytes.
func (m *maker) quoteFields(bases map[string]base) []vector {
	offsets := []struct {
		name string
		at   int
	}{
		{"qe_vendor_data", 28}, {"tee_tcb_svn", 48}, {"mr_seam", 64}, {"mr_signer_seam", 112}, {"seam_attributes", 160}, {"td_attributes", 168},
		{"xfam", 176}, {"mr_td", 184}, {"mr_config_id", 232}, {"mr_owner", 280}, {"mr_owner_config", 328}, {"rtmr0", 376}, {"rtmr1", 424},
		{"rtmr2", 472}, {"rtmr3", 520}, {"report_data", 568}, {"signature", 636}, {"attestation_key", 700},
	}
	var made []vector
	for _, field := range offsets {
		made = append(made, m.flipped(bases, tdx, "quote's "+field.name, field.at, verify.ClassSignature))
	}
	return made
}

// sizes are quotes that lie about the size of a part, and evidence that is cut.
func (m *maker) sizes(bases map[string]base) []vector {
	m.t.Helper()
	var made []vector
	for _, each := range []struct {
		tee, name string
		at        int // of the size's most significant byte; 0 for a cut
		length    int
	}{
		{tdx, "size of the signature data", 635, 0}, {tdx, "size of the certification data", 769, 0}, {tdx, "size of the authentication data", 1219, 0},
		{tdx, "cut in its header", 0, 40}, {tdx, "cut in its body", 0, 300}, {tdx, "cut in its certificates", 0, 2000},
		{snp, "cut in its fields", 0, 500}, {snp, "cut in its signature", 0, 1183}, {snp, "empty but a byte", 0, 1},
	} {
		raw := m.reportOf(bases, each.tee)
		about := fmt.Sprintf("the evidence ends after %d bytes", each.length)
		if each.length > 0 {
			raw = raw[:each.length]
		} else {
			raw[each.at] = 0xff
			about = "the quote says that a part of it is larger than it is"
		}
		made = append(made, vector{
			Name: each.tee + " evidence: " + each.name, About: about, Base: each.tee,
			Set: []edit{{"/cpu_evidence/report_base64", marshal(m.t, base64.StdEncoding.EncodeToString(raw))}}, Verdict: verdict{Code: verify.ClassDocument},
		})
	}
	return made
}

// reportOf returns the evidence of a base.
func (m *maker) reportOf(bases map[string]base, tee string) []byte {
	m.t.Helper()
	packed := valueAt(parsed(m.t, bases[tee].bundle.Document), "/cpu_evidence/report_base64").(string)
	raw, err := base64.StdEncoding.DecodeString(packed)
	if err != nil {
		m.t.Fatal(err)
	}
	return raw
}

func (m *maker) flipped(bases map[string]base, tee, name string, at int, class verify.Class) vector {
	m.t.Helper()
	raw := m.reportOf(bases, tee)
	raw[at] ^= 1
	return vector{
		Name: tee + " " + name, About: fmt.Sprintf("byte %d of the evidence has another lowest bit", at), Base: tee,
		Set: []edit{{"/cpu_evidence/report_base64", marshal(m.t, base64.StdEncoding.EncodeToString(raw))}}, Verdict: verdict{Code: class},
	}
}
