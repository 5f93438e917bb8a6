package verifyproxy

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"cloister.dev/guest/internal/client/enclaveconn"
	"cloister.dev/guest/internal/client/verify"
)

// between serves a handler with a key of its own, as a party in the middle must, and returns how the
// verifier's check of it ends.
func between(t *testing.T, e *enclave, handler http.Handler) verify.Class {
	t.Helper()
	relay := httptest.NewTLSServer(handler)
	defer relay.Close()
	connection, err := enclaveconn.Open(t.Context(), enclaveconn.Target{Host: strings.TrimPrefix(relay.URL, "https://"), Service: "cloister"})
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	var failure *verify.Failure
	if err := e.judge(connection); !errors.As(err, &failure) {
		t.Fatal(err)
	}
	return failure.Class
}

func TestWhoRelaysTheDocumentHasAnotherKey(t *testing.T) {
	e := newEnclave(t)
	// All servers of httptest have one key, so the enclave gets one of its own.
	e.own(t)
	target, err := url.Parse(e.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	relay := httputil.NewSingleHostReverseProxy(target)
	relay.Transport = e.server.Client().Transport
	if class := between(t, e, relay); class != verify.ClassKey {
		t.Errorf("code %d", class)
	}
}

func TestAnOldDocumentIsRefused(t *testing.T) {
	e := newEnclave(t)
	response, err := e.server.Client().Get(e.server.URL + "/.well-known/cloister-attestation?nonce=" + strings.Repeat("07", 32))
	if err != nil {
		t.Fatal(err)
	}
	old, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	replay := http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) { _, _ = writer.Write(old) })
	if class := between(t, e, replay); class != verify.ClassFreshness {
		t.Errorf("code %d", class)
	}
}
