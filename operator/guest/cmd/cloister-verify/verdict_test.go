package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"cloister.dev/guest/internal/attestdoc"
)

// TestTheKeyForBodiesIsThatOfAVerifiedDocument has clients that encrypt to what the program writes.
func TestTheKeyForBodiesIsThatOfAVerifiedDocument(t *testing.T) {
	spki := strings.Repeat("ab", 32)
	for _, key := range []string{"", strings.Repeat("cd", 32)} {
		claim := attestdoc.Claim{Keys: attestdoc.CryptoMaterial{TLSSPKI: spki, HPKEX25519: key}, Measurement: []byte("{}")}
		made, err := claim.Document(attestdoc.CPUNone, []byte("x"), nil)
		if err != nil {
			t.Fatal(err)
		}
		document, err := json.Marshal(made)
		if err != nil {
			t.Fatal(err)
		}
		verified := verdict{bodiesKey: keyForBodies(document)}
		if verified.bodiesKey != key {
			t.Errorf("%q, want %q", verified.bodiesKey, key)
		}
		var text, messages bytes.Buffer
		if code := verified.report(options{}, &text, &messages); code != 0 || strings.Contains(text.String(), "hpke_x25519): "+key+"\n") != (key != "") {
			t.Errorf("%d %s", code, &text)
		}
		var out bytes.Buffer
		verified.report(options{json: true}, &out, &messages)
		var data map[string]any
		if err := json.Unmarshal(out.Bytes(), &data); err != nil || data["hpke_x25519"] != key {
			t.Errorf("%s %v", &out, err)
		}
	}
	var out, messages bytes.Buffer
	refused(verdict{}, errors.New("no")).report(options{json: true}, &out, &messages)
	if !strings.Contains(out.String(), `"hpke_x25519":""`) {
		t.Errorf("a refusal has a key: %s", &out)
	}
}
