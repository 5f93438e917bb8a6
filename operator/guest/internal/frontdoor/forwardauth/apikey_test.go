package forwardauth

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"cloister.dev/guest/internal/frontdoor/apiclient"
)

func TestDecisionsByStatusOfTheAPI(t *testing.T) {
	status, sent := 0, map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if err := json.NewDecoder(request.Body).Decode(&sent); err != nil || request.URL.Path != validatePath || request.Method != http.MethodPost {
			t.Errorf("%s %s: %v", request.Method, request.URL, err)
		}
		writer.Header().Set("Retry-After", "9")
		writer.WriteHeader(status)
	}))
	defer server.Close()
	ask, err := newValidator(apiclient.Address{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	asked := keyRequest{Key: "tk_a", Domain: "web.example", Host: "own.example", Path: "/v1"}
	for _, each := range []int{200, 401, 402, 403, 429} {
		status = each
		response, err := ask(t.Context(), asked)
		if err != nil || response.status != each || (response.wait == 9*time.Second) != (each == 429) {
			t.Errorf("%d: got %+v, %v", each, response, err)
		}
	}
	want := map[string]string{"api_key": "tk_a", "domain": "web.example", "requested_host": "own.example", "path": "/v1"}
	for name, value := range want {
		if sent[name] != value {
			t.Errorf("%s: told %q", name, sent[name])
		}
	}
	for _, each := range []int{201, 204, 301, 307, 400, 404, 405, 422, 500, 502, 503} {
		status = each
		if response, err := ask(t.Context(), asked); err == nil {
			t.Errorf("%d counts as %+v", each, response)
		}
	}
}

func TestAFailureDoesNotQuoteTheKey(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(writer).Hijack()
		if err == nil {
			connection.Close()
		}
	}))
	defer server.Close()
	ask, err := newValidator(apiclient.Address{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	log := &bytes.Buffer{}
	keys := newKeyCache(KeyCheck{OutageSeconds: 30}, ask, slog.New(slog.NewTextHandler(log, nil)))
	for range breakerThreshold {
		if got := keys.of(t, "tk_confidential"); got != http.StatusServiceUnavailable {
			t.Errorf("got %d", got)
		}
	}
	if !strings.Contains(log.String(), "cannot be reached") || strings.Contains(log.String(), "tk_") {
		t.Errorf("log: %s", log)
	}
}

func TestAnAPIThatDoesNotRespondTimesOut(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	ask, err := newValidator(apiclient.Address{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t.Context(), keyRequest{}); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("got %v", err)
	}
}
