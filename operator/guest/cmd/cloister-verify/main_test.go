package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"cloister.dev/guest/internal/attestdoc"
	"cloister.dev/guest/internal/verify"
)

var (
	digest = "sha256:" + strings.Repeat("ab", 32)
	launch = strings.Repeat("cd", 48)
)

// enclave serves a handler over TLS and returns its address.
func enclave(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "https://")
}

// dummy responds as an enclave without a TEE.
func dummy(writer http.ResponseWriter, request *http.Request) {
	if request.URL.Path != "/.well-known/cloister-attestation" {
		http.NotFound(writer, request)
		return
	}
	nonce, _ := hex.DecodeString(request.URL.Query().Get("nonce"))
	claim := attestdoc.Claim{Nonce: nonce, Keys: attestdoc.CryptoMaterial{TLSSPKI: strings.Repeat("00", 32)}, Measurement: []byte("{}")}
	document, err := claim.Document(attestdoc.CPUNone, []byte("{}"), nil)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(writer).Encode(document)
}

func TestAnEnclaveWithoutTEEIsNotConfidential(t *testing.T) {
	var out, messages bytes.Buffer
	code := run([]string{"--json", "--measurement", digest, "--platform", launch, enclave(t, dummy)}, &out, &messages)
	var verdict struct {
		Verified bool
		Failure  verify.Failure
	}
	if err := json.Unmarshal(out.Bytes(), &verdict); err != nil {
		t.Fatal(err)
	}
	if code != int(verify.ClassNotConfidential) || verdict.Verified || int(verdict.Failure.Class) != code || messages.Len() != 0 {
		t.Fatalf("code %d, %s, %s", code, &out, &messages)
	}
}

func TestMessagesNameTheStep(t *testing.T) {
	var out, messages bytes.Buffer
	run([]string{"--measurement", digest, "--platform", launch, enclave(t, dummy)}, &out, &messages)
	if out.Len() != 0 || !strings.HasPrefix(messages.String(), "evidence: not confidential") {
		t.Fatalf("%s, %s", &out, &messages)
	}
}

func TestWhatCannotBeFetchedIsUnreachable(t *testing.T) {
	redirect := func(writer http.ResponseWriter, request *http.Request) {
		http.Redirect(writer, request, "https://other.example", http.StatusFound)
	}
	for name, host := range map[string]string{"not found": enclave(t, http.NotFound), "redirect": enclave(t, redirect), "closed": "127.0.0.1:1"} {
		var out, messages bytes.Buffer
		if code := run([]string{"--measurement", digest, "--platform", launch, host}, &out, &messages); code != int(verify.ClassUnreachable) {
			t.Errorf("%s: code %d, %s", name, code, &messages)
		}
	}
}

func TestMissingExpectationsAreRefused(t *testing.T) {
	for _, arguments := range [][]string{
		{}, {"host"}, {"--measurement", digest, "host"}, {"--platform", launch, "host"},
		{"--measurement", digest, "--platform", launch}, {"--measurement", "sha256:ab", "--platform", launch, "host"},
		{"--unknown", "host"},
	} {
		var out, messages bytes.Buffer
		if code := run(arguments, &out, &messages); code != int(verify.ClassUsage) || messages.Len() == 0 {
			t.Errorf("%q: code %d, %s", arguments, code, &messages)
		}
	}
}

func TestNoErrorIsTakenForAVerdict(t *testing.T) {
	for _, asJSON := range []bool{true, false} {
		var out, messages bytes.Buffer
		code := report(errors.New("of no class"), asJSON, &out, &messages)
		if code != int(verify.ClassDocument) || strings.Contains(out.String(), "verified:") || strings.Contains(out.String(), `"verified":true`) {
			t.Errorf("code %d, %s, %s", code, &out, &messages)
		}
	}
}
