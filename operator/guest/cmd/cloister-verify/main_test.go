package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloister.dev/guest/internal/client/verify"
	"cloister.dev/guest/internal/evidence/attestdoc"
)

var (
	digest = "sha256:" + strings.Repeat("ab", 32)
	launch = strings.Repeat("cd", 48)
	image  = "registry.example/guest@" + digest
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

// file writes a file and returns its path.
func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAnEnclaveWithoutTEEIsNotConfidential(t *testing.T) {
	config := file(t, "containers:\n- name: web\n  image: "+image+"\n")
	for _, options := range [][]string{{"--measurement", digest}, {"--file", config}} {
		var out, messages bytes.Buffer
		code := run(context.Background(), append([]string{"--json", "--platform", launch, enclave(t, dummy)}, options...), &out, &messages)
		var verdict struct {
			Verified bool
			Failure  verify.Failure
			Steps    []step
		}
		if err := json.Unmarshal(out.Bytes(), &verdict); err != nil {
			t.Fatal(err)
		}
		if code != int(verify.ClassNotConfidential) || verdict.Verified || int(verdict.Failure.Class) != code || messages.Len() != 0 {
			t.Fatalf("%q: code %d, %s, %s", options, code, &out, &messages)
		}
		if last := verdict.Steps[len(verdict.Steps)-1]; len(verdict.Steps) != 3 || last.Result != "refused" || last.Step != "evidence" {
			t.Fatalf("steps %v", verdict.Steps)
		}
	}
}

func TestMessagesNameTheStep(t *testing.T) {
	var out, messages bytes.Buffer
	run(context.Background(), []string{"--measurement", digest, "--platform", launch, enclave(t, dummy)}, &out, &messages)
	if out.Len() != 0 || !strings.HasPrefix(messages.String(), "evidence: not confidential") {
		t.Fatalf("%s, %s", &out, &messages)
	}
}

func TestWhatCannotBeFetchedIsUnreachable(t *testing.T) {
	redirect := func(writer http.ResponseWriter, request *http.Request) {
		http.Redirect(writer, request, "https://other.example", http.StatusFound)
	}
	endless := func(writer http.ResponseWriter, _ *http.Request) {
		for part := make([]byte, 1<<16); ; {
			if _, err := writer.Write(part); err != nil {
				return
			}
		}
	}
	for name, host := range map[string]string{"not found": enclave(t, http.NotFound), "redirect": enclave(t, redirect), "closed": "127.0.0.1:1", "no host": "user@host", "endless": enclave(t, endless)} {
		var out, messages bytes.Buffer
		if code := run(context.Background(), []string{"--measurement", digest, "--platform", launch, host}, &out, &messages); code != int(verify.ClassUnreachable) {
			t.Errorf("%s: code %d, %s", name, code, &messages)
		}
	}
}

func TestOptionsThatDoNotFitAreRefused(t *testing.T) {
	for _, words := range []string{
		"", "host", "host other --measurement " + digest, "--measurement " + digest, "host --measurement sha256:ab", "host --unknown",
		"host --platform ab --file x", "host --repo a/b", "host --file x --measurement " + digest, "host --file x --repo a/b --tag v1",
		"host --file x --tag v1", "host --file x --commit " + strings.Repeat("0", 40), "host --file x --documents d --settings s --host-profile h",
		"host --file x --settings s", "host --measurement " + digest + " --guest-image " + image, "host --measurement " + digest + " --gpus 1",
		"host --file x --guest-image a:latest", "host --file x --shim-image " + image + " --images-lock l", "host --file x --gpus 65",
		"host --file x --minimum-tcb 1,2,3", "host --file x --minimum-tcb 1,2,3,4,5", "host --file x --minimum-tcb 1,2,3,256",
		"host --file x --at now", "host --from-bundle b", "--from-bundle b --at yesterday", "--from-bundle b --bundle c", "--from-bundle b --repo a/b --tag v1",
		"host --file x --nonce " + strings.Repeat("ab", 32), "host --file x --tls-key " + strings.Repeat("ab", 32), "--from-bundle b --nonce ab", "--from-bundle b --tls-key " + strings.Repeat("zz", 32),
		"proxy host --file x --listen 127.0.0.1:0 --nonce " + strings.Repeat("ab", 32),
		"host --file x --listen 127.0.0.1:0", "proxy host --file x", "proxy host --file x --listen localhost:80", "proxy host --file x --listen 0.0.0.0:0",
		"proxy host --file x --listen 127.0.0.1:0 --json", "proxy host --file x --listen 127.0.0.1:0 --bundle b",
		"proxy host --file x --listen 127.0.0.1:0 --recheck 1ms", "host --file x --listen-names a",
		"proxy host --file x --listen 127.0.0.1:0 --listen-names a:80", "proxy host --file x --listen 127.0.0.1:0 --listen-names a,", "proxy --from-bundle b --listen 127.0.0.1:0",
	} {
		var out, messages bytes.Buffer
		if code := run(context.Background(), strings.Fields(words), &out, &messages); code != int(verify.ClassUsage) || messages.Len() == 0 {
			t.Errorf("%q: code %d, %s", words, code, &messages)
		}
	}
}

func TestFilesThatCannotBeUsedAreNamed(t *testing.T) {
	config := file(t, "containers:\n- name: web\n  image: "+image+"\n")
	for option, content := range map[string]string{
		"--documents": "[]", "--images-lock": "[digests]\n", "--insecure-development-root": "x", "--host-profile": "kind: Pod\n",
	} {
		for path, what := range map[string]string{file(t, content): "bad", filepath.Join(t.TempDir(), "none"): "missing"} {
			var out, messages bytes.Buffer
			code := run(context.Background(), []string{enclave(t, dummy), "--file", config, option, path}, &out, &messages)
			if code != int(verify.ClassUsage) || !strings.Contains(messages.String(), strings.ReplaceAll(strings.TrimPrefix(option, "--"), "-", " ")[:4]) {
				t.Errorf("%s %s: code %d, %s", what, option, code, &messages)
			}
		}
	}
}

func TestNoErrorIsTakenForAVerdict(t *testing.T) {
	for _, asJSON := range []bool{true, false} {
		var out, messages bytes.Buffer
		code := refused(verdict{}, errors.New("of no class")).report(options{json: asJSON}, &out, &messages)
		if code != int(verify.ClassDocument) || strings.Contains(out.String(), "verified:") || strings.Contains(out.String(), `"verified":true`) {
			t.Errorf("code %d, %s, %s", code, &out, &messages)
		}
	}
}
