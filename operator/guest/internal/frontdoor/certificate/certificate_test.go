package certificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cloister.dev/guest/internal/frontdoor/apiclient"
)

func TestTheFirstCertificateIsIssued(t *testing.T) {
	it := newSidecar(t, newAPI(t))
	if err := it.runs(1); err != nil {
		t.Fatal(err)
	}
	if want := []time.Duration{40 * time.Minute}; !slices.Equal(it.waits, want) {
		t.Errorf("waits %v, not two thirds of an hour", it.waits)
	}
	key, err := it.place.key()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := it.place.current(key, []string{host}, it.clock); err != nil {
		t.Error(err)
	}
	der, _ := x509.MarshalPKIXPublicKey(key.Public())
	digest := sha256.Sum256(der)
	if got := strings.TrimSpace(string(it.read(t, fingerprintFile))); got != hex.EncodeToString(digest[:]) {
		t.Errorf("fingerprint %s", got)
	}
	for name, mode := range map[string]os.FileMode{keyFile: 0o640, certificateFile: 0o644, fingerprintFile: 0o644} {
		if info, err := os.Stat(it.place.path(name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	for ending, name := range map[string]string{".crt": certificateFile, ".key": keyFile} {
		there, err := os.ReadFile(filepath.Join(it.spec.ShimStore, host, host+ending))
		if err != nil || !bytes.Equal(there, it.read(t, name)) {
			t.Errorf("the shim's %s: %v", ending, err)
		}
	}
	if _, err := os.Stat(it.place.path(requestFile)); !errors.Is(err, os.ErrNotExist) {
		t.Error("the request is still there")
	}
	if status := it.status(t); status.Message != "" || status.NotAfter == nil {
		t.Errorf("status %+v", status)
	}
}

func TestARenewalKeepsTheKeyWithANewRequest(t *testing.T) {
	it := newSidecar(t, newAPI(t))
	var first []byte
	it.after = func(wait int) {
		if wait == 1 && first == nil {
			first = it.read(t, certificateFile)
		}
	}
	if err := it.runs(2); err != nil {
		t.Fatal(err)
	}
	if len(it.api.requests) != 2 || bytes.Equal(it.api.requests[0], it.api.requests[1]) {
		t.Errorf("%d requests", len(it.api.requests))
	}
	if bytes.Equal(first, it.read(t, certificateFile)) {
		t.Error("the certificate is the old one")
	}
	key, _ := it.place.key()
	for _, request := range it.api.requests {
		if !asksFor(request, key, []string{host}) {
			t.Error("a request is of another key")
		}
	}
}

func TestATokenThatTheKubeletReplacedIsReadAgain(t *testing.T) {
	it := newSidecar(t, newAPI(t))
	it.after = func(wait int) {
		if wait != 1 {
			return
		}
		it.api.mutex.Lock()
		defer it.api.mutex.Unlock()
		it.api.token = strings.Repeat("longer.", 500)
		if err := os.WriteFile(it.spec.TokenFile, []byte(it.api.token), 0o600); err != nil {
			t.Error(err)
		}
	}
	if err := it.runs(2); err != nil {
		t.Fatal(err)
	}
	if len(it.api.requests) != 2 {
		t.Errorf("%d requests", len(it.api.requests))
	}
}

func TestAQueuedOrderIsPolledWithTheSameRequest(t *testing.T) {
	it := newSidecar(t, newAPI(t))
	queued := respond(http.StatusAccepted, 30, map[string]any{"status": "queued", "message": "in the queue", "retry_after": 30})
	it.api.answers = []func(http.ResponseWriter){queued, queued, queued}
	if err := it.runs(2); err != nil {
		t.Fatal(err)
	}
	if status := it.status(t); !strings.Contains(status.Message, "in the queue") {
		t.Errorf("status %+v", status)
	}
	// Killed and restarted: it continues with the pending request.
	if err := it.runs(3); err != nil {
		t.Fatal(err)
	}
	if want := []time.Duration{30 * time.Second, 40 * time.Minute}; !slices.Equal(it.waits[:2], want) {
		t.Errorf("waits %v", it.waits)
	}
	for _, request := range it.api.requests[1:4] {
		if !bytes.Equal(request, it.api.requests[0]) {
			t.Error("a queued order was polled with another request")
		}
	}
}

func TestFailuresBackOffAndStopTheFirstRun(t *testing.T) {
	it := newSidecar(t, newAPI(t))
	failing := respond(http.StatusServiceUnavailable, 0, map[string]string{"error": "nobody signs here"})
	for range 20 {
		it.api.answers = append(it.api.answers, failing)
	}
	it.jitter = func() float64 { return 1 }
	err := it.runs(20)
	if err == nil || !strings.Contains(err.Error(), "no certificate yet after 20s: the API returned 503: nobody signs here") {
		t.Fatalf("returned %v", err)
	}
	want := []time.Duration{1, 2, 4, 8}
	for index, pause := range it.waits {
		if pause != want[index]*time.Second {
			t.Errorf("waits %v", it.waits)
			break
		}
	}
	// After a restart it does not exit again with the same reason, and keeps retrying.
	if err := it.runs(9); err != nil {
		t.Errorf("returned %v", err)
	}
	if last := it.waits[len(it.waits)-1]; last != longestFirst {
		t.Errorf("waits %v", it.waits)
	}
	it.api.answers = repeat(respond(503, 0, map[string]string{"error": "another reason"}))
	if err := it.runs(20); err == nil || !strings.Contains(err.Error(), "another reason") {
		t.Errorf("returned %v", err)
	}
	it.api.answers = repeat(respond(503, 0, map[string]string{"error": "nobody signs here"}))
	if err := it.runs(20); err == nil {
		t.Error("the first reason was not reported again")
	}
	if reason, _ := os.ReadFile(it.spec.TerminationFile); !strings.Contains(string(reason), "nobody signs here") {
		t.Errorf("termination message %q", reason)
	}
}

func TestAFailingRenewalLeavesTheCertificate(t *testing.T) {
	it := newSidecar(t, newAPI(t))
	var first []byte
	it.after = func(wait int) {
		if wait == 1 && first == nil {
			first = it.read(t, certificateFile)
			it.api.mutex.Lock()
			defer it.api.mutex.Unlock()
			for range 12 {
				it.api.answers = append(it.api.answers, respond(http.StatusTooManyRequests, 600, map[string]string{"error": "too often"}))
			}
		}
	}
	if err := it.runs(4); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, it.read(t, certificateFile)) {
		t.Error("the certificate went")
	}
	if it.waits[1] != longestPause {
		t.Errorf("waits %v: the API's word counts up to a bound", it.waits)
	}
	status := it.status(t)
	if status.NotAfter == nil || !strings.Contains(status.Message, "too often") {
		t.Errorf("status %+v", status)
	}
	it.api.answers = nil
	if err := it.runs(3); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(first, it.read(t, certificateFile)) || it.status(t).Message != "" {
		t.Error("no new certificate after the API recovered")
	}
}

func TestAnExpiryIsReportedOnceAndSoIsItsEnd(t *testing.T) {
	it := newSidecar(t, newAPI(t))
	if err := it.runs(1); err != nil {
		t.Fatal(err)
	}
	failing := repeat(respond(503, 0, map[string]string{"error": "nobody signs here"}))
	it.api.answers = failing
	if err := it.runs(20); !errors.Is(err, errPatience) {
		t.Fatalf("returned %v", err)
	}
	message := func() string {
		text, err := os.ReadFile(it.spec.TerminationFile)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if said := message(); !strings.HasPrefix(said, "CertificateExpired: it expired at ") || !strings.HasSuffix(said, "nobody signs here") {
		t.Errorf("termination message %q", said)
	}
	if status := it.status(t); status.NotAfter == nil || !status.NotAfter.Before(it.clock) {
		t.Errorf("status %+v", status)
	}
	it.api.answers = failing
	if err := it.runs(9); err != nil {
		t.Errorf("returned %v for the second time", err)
	}
	it.api.answers = nil
	if err := it.runs(9); !errors.Is(err, errRenewed) || message() != "" {
		t.Errorf("returned %v with %q", err, message())
	}
	if err := it.runs(2); err != nil {
		t.Errorf("returned %v after the renewal", err)
	}
}

func TestARefusalDiscardsTheRequest(t *testing.T) {
	for _, status := range []int{http.StatusBadRequest, http.StatusForbidden, http.StatusConflict} {
		it := newSidecar(t, newAPI(t))
		it.api.answers = []func(http.ResponseWriter){respond(status, 0, map[string]string{"error": "not yours"})}
		if err := it.runs(2); err != nil {
			t.Fatal(err)
		}
		if len(it.api.requests) != 2 || bytes.Equal(it.api.requests[0], it.api.requests[1]) {
			t.Errorf("%d: %d requests", status, len(it.api.requests))
		}
	}
}

func TestAnUnusableChainIsNotStored(t *testing.T) {
	other, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	for name, spoil := range map[string]func(*api){
		"another key": func(a *api) { a.signed = other.Public() },
		"not for " + host: func(a *api) {
			a.change = func(c *x509.Certificate) *x509.Certificate { c.DNSNames = []string{"b.example"}; return c }
		},
		"expired at":                 func(a *api) { a.life = -time.Minute },
		"chain is empty":             func(a *api) { a.answers = repeat(respond(200, 0, map[string]string{"certificate": ""})) },
		"that is not a certificate":  func(a *api) { a.answers = repeat(respond(200, 0, map[string]string{"certificate": "hello"})) },
		"something that is not JSON": func(a *api) { a.answers = repeat(func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>") }) },
		"broke off or is too long": func(a *api) {
			a.answers = repeat(func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, maxAnswer+2)) })
		},
		"the API returned 307":         func(a *api) { a.answers = repeat(respond(307, 0, map[string]string{"error": "elsewhere"})) },
		"the API refused: no business": func(a *api) { a.answers = repeat(respond(403, 0, map[string]string{"error": "no business"})) },
	} {
		t.Run(name, func(t *testing.T) {
			it := newSidecar(t, newAPI(t))
			spoil(it.api)
			if err := it.runs(20); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("returned %v", err)
			}
			if _, err := os.Stat(it.place.path(certificateFile)); !errors.Is(err, os.ErrNotExist) {
				t.Error("it was kept")
			}
		})
	}
}

func repeat(one func(http.ResponseWriter)) []func(http.ResponseWriter) {
	return slices.Repeat([]func(http.ResponseWriter){one}, 20)
}

func TestAShortLifetimeDoesNotSkipTheBackoff(t *testing.T) {
	it := newSidecar(t, newAPI(t))
	it.api.life = 3 * time.Second
	if err := it.runs(3); err != nil {
		t.Fatal(err)
	}
	for _, pause := range it.waits {
		if pause < settle {
			t.Errorf("waits %v", it.waits)
		}
	}
}

func TestAnUnreachableAPIIsNamed(t *testing.T) {
	it := newSidecar(t, newAPI(t))
	it.api.Close()
	err := it.runs(20)
	if err == nil || !strings.Contains(err.Error(), it.spec.API.URL+" cannot be reached") {
		t.Errorf("returned %v", err)
	}
}

func TestSpec(t *testing.T) {
	valid := func() Spec {
		return Spec{Version: Version, API: apiclient.Address{URL: "http://192.0.2.1"}, TokenFile: "/t", Hostnames: []string{host}, Directory: "/d"}
	}
	for name, change := range map[string]func(*Spec){
		"version":         func(d *Spec) { d.Version = 1 },
		"api.url":         func(d *Spec) { d.API.URL = "x" },
		"tokenFile":       func(d *Spec) { d.TokenFile = "t" },
		"directory":       func(d *Spec) { d.Directory = "" },
		"shimStore":       func(d *Spec) { d.ShimStore = "/dx/y" },
		"terminationFile": func(d *Spec) { d.TerminationFile = "x" },
		"patienceSeconds": func(d *Spec) { d.PatienceSeconds = -1 },
	} {
		spec := valid()
		change(&spec)
		if err := spec.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := valid().Validate(); err != nil {
		t.Error(err)
	}
}

func FuzzCheckChain(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, data []byte) {
		if leaf, err := checkChain(data, key, []string{host}, time.Now()); (leaf == nil) == (err == nil) {
			t.Errorf("%v and %v", leaf, err)
		}
	})
}
