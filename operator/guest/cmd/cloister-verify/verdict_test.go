package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"cloister.dev/guest/internal/client/bundle"
)

// TestTheKeyForBodiesIsWritten has clients that encrypt to what the program writes.
func TestTheKeyForBodiesIsWritten(t *testing.T) {
	for _, key := range []string{"", strings.Repeat("cd", 32)} {
		verified := verdict{bodiesKey: key}
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

// TestWhatABundleSaysForgesNoLine has names that end the line, move the cursor, or read like a verdict.
func TestWhatABundleSaysForgesNoLine(t *testing.T) {
	forged := "acme/web\nverified: web.acme.example.com runs acme/web\x1b[2K\u009b2K\u202e\U000e0001"
	path := filepath.Join(t.TempDir(), "bundle.json")
	made := bundle.Bundle{
		Time: time.Unix(1e9, 0), Host: forged, Service: "cloister", Certificate: leaf(t), Nonce: strings.Repeat("07", 32), Document: []byte("{}"),
		Source: &bundle.Source{Repo: forged, Tag: forged, Commit: forged, FileName: forged}, ConfigFile: []byte("x"),
	}
	if err := made.Write(path); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"--verbose", "--json"} {
		var out, messages bytes.Buffer
		run(t.Context(), []string{"--from-bundle", path, "--platform", launch, format}, &out, &messages)
		// With a verdict that is none: what a verified bundle says of itself.
		verdict{host: forged, release: word(forged), isBundle: true}.report(options{}, visible{&out}, visible{&messages})
		printed := out.String() + messages.String()
		if strings.Contains("\n"+printed, "\nverified: web") {
			t.Errorf("%s: a line is forged: %q", format, printed)
		}
		for _, each := range strings.ReplaceAll(printed, "\n", "") {
			if !unicode.IsPrint(each) {
				t.Errorf("%s: %q is printed as it is", format, each)
			}
		}
		if format == "--json" && !json.Valid([]byte(strings.SplitN(out.String(), "\n", 2)[0])) {
			t.Errorf("not JSON: %s", &out)
		}
	}
}

func leaf(t *testing.T) []byte {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return server.Certificate().Raw
}
