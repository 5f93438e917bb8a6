package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"cloister.dev/guest/internal/client/bundle"
	"cloister.dev/guest/internal/evidence/attestation"
	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/evidence/teetest"
)

// compared are the fields of evidence that the guest itself compares: the report data, and the digest of
// the initdata.
var compared = map[string][][2]int{snp: {{0x50, 0x90}, {0xC0, 0xE0}}, tdx: {{568, 632}, {232, 280}}}

// TestTheGuestServesNoEvidenceOfSomethingElse lets the guest of the honest enclave get the evidence of each
// vector from the machine's attestation service. It must serve it if, and only if, it binds what was
// requested and reports the guest's own initdata; signatures are for clients to verify.
func TestTheGuestServesNoEvidenceOfSomethingElse(t *testing.T) {
	served, refused := 0, 0
	for _, each := range kept[[]vector](t, "vectors.json") {
		document := kept[bundle.Bundle](t, "base-"+each.Base+".json").Document
		honest, err := attestdoc.Parse(document)
		if err != nil {
			t.Fatal(err)
		}
		parts, err := attestdoc.Parse(each.apply(t, document))
		if err != nil || each.Base == none || parts.CPUFormat != honest.CPUFormat || len(parts.Report) != len(honest.Report) {
			continue // the guest gets only evidence, and never a document
		}
		same := true
		for _, field := range compared[each.Base] {
			same = same && bytes.Equal(parts.Report[field[0]:field[1]], honest.Report[field[0]:field[1]])
		}
		err = serve(t, each.Base, honest, parts.Report)
		if (err == nil) != same {
			t.Errorf("%s: %v", each.Name, err)
		}
		if err == nil {
			served++
		} else {
			refused++
		}
	}
	if served < 50 || refused < 30 {
		t.Errorf("%d served, %d refused", served, refused)
	}
}

// kept returns what a file of the vectors has.
func kept[T any](t *testing.T, name string) T {
	t.Helper()
	var read T
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// serve returns what the guest of an honest enclave serves when the machine's service has this evidence.
func serve(t *testing.T, tee string, honest attestdoc.Parts, report []byte) error {
	t.Helper()
	evidence, err := teetest.ComponentsTDX(report)
	kind := attestation.TEETDX
	if tee == snp {
		kind = attestation.TEESNP
		evidence, err = teetest.ComponentsSNP(report, honest.Collateral[attestdoc.AMDVCEK])
	}
	if err != nil {
		t.Fatal(err)
	}
	service := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) { _, _ = writer.Write(evidence) }))
	defer service.Close()
	key := filepath.Join(t.TempDir(), "tls.spki")
	if err := os.WriteFile(key, []byte(honest.Keys.TLSSPKI+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	attester, err := attestation.New(attestation.Settings{TEE: kind, Service: service.URL, Measurement: honest.Measurement, Initdata: honest.Initdata, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	_, err = attester.Document(context.Background(), nonce, "")
	return err
}
