package forwardauth

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloister.dev/guest/internal/frontdoor/shimsocket"
)

type asking struct {
	path, key, address string
	raw                []string
}

func (a asking) of(server *server) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodGet, a.path, nil)
	if a.key != "" {
		request.Header.Set("Authorization", "Bearer "+a.key)
	}
	if a.raw != nil {
		request.Header["Authorization"] = a.raw
	}
	request.Header.Set(headerAddress, a.address)
	request.Header.Set(headerHost, "web.example")
	request.Header.Set(headerTarget, "/v1/chat/completions?secret=1")
	recorder := httptest.NewRecorder()
	server.handler().ServeHTTP(recorder, request)
	return recorder
}

func whole(api *api, limits *RateLimit) *server {
	return newServer(checker(api, &bytes.Buffer{}), limits, 100)
}

func TestShapesOfRefusals(t *testing.T) {
	for status, kind := range map[int]string{
		http.StatusUnauthorized: "invalid_request_error", http.StatusPaymentRequired: "insufficient_quota",
		http.StatusForbidden: "invalid_request_error", http.StatusTooManyRequests: "rate_limit_error",
		0: "server_error",
	} {
		response := asking{path: pathKey, key: "tk_a", address: "192.0.2.1"}.of(whole(&api{status: status}, nil))
		want := status
		if status == 0 {
			want = http.StatusServiceUnavailable
		}
		var body struct {
			Error struct{ Message, Type, Code string }
		}
		if err := json.Unmarshal(response.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		if response.Code != want || body.Error.Type != kind || body.Error.Message == "" || body.Error.Code == "" || response.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%d: got %d %s", status, response.Code, response.Body)
		}
		if (response.Header().Get("WWW-Authenticate") != "") != (want == http.StatusUnauthorized) {
			t.Errorf("%d: WWW-Authenticate %q", status, response.Header().Get("WWW-Authenticate"))
		}
	}
}

func TestAMissingKeyIsNotValidated(t *testing.T) {
	for _, values := range [][]string{
		nil, {""}, {"Basic dTpw"}, {"Bearer"}, {"Bearer "}, {"Bearer a b"}, {"Bearer a,Bearer b"}, {"Bearer a", "Bearer b"},
		{"Bearer a\x00"}, {"Bearer \u00e9"}, {"Bearer " + strings.Repeat("a", maxKey+1)},
	} {
		api := &api{status: http.StatusOK}
		response := asking{path: pathKey, raw: values, address: "192.0.2.1"}.of(whole(api, nil))
		if response.Code != http.StatusUnauthorized || api.count() != 0 {
			t.Errorf("%q: got %d after %d requests", values, response.Code, api.count())
		}
	}
}

func TestTheSchemeIsOfAnyCase(t *testing.T) {
	for _, value := range []string{"bearer tk_a", "BEARER  tk_a", " Bearer tk_a "} {
		if response := (asking{path: pathKey, raw: []string{value}}).of(whole(&api{status: http.StatusOK}, nil)); response.Code != http.StatusOK {
			t.Errorf("%q: got %d", value, response.Code)
		}
	}
}

func TestEachKeyHasItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := whole(&api{status: http.StatusOK}, &RateLimit{PerSecond: 0.5, Burst: 2})
		one, other := asking{path: pathKey, key: "tk_a", address: "192.0.2.1"}, asking{path: pathKey, key: "tk_b", address: "192.0.2.1"}
		for range 2 {
			if one.of(server).Code != http.StatusOK || other.of(server).Code != http.StatusOK {
				t.Fatal("refused within the burst")
			}
		}
		response := one.of(server)
		if response.Code != http.StatusTooManyRequests || response.Header().Get("Retry-After") != "2" {
			t.Errorf("got %d, Retry-After %q", response.Code, response.Header().Get("Retry-After"))
		}
		one.address = "192.0.2.2"
		if one.of(server).Code != http.StatusTooManyRequests {
			t.Error("another address selects another bucket for a key")
		}
		time.Sleep(2 * time.Second)
		if one.of(server).Code != http.StatusOK {
			t.Error("refused after the time that it named")
		}
	})
}

func TestEachAddressHasItsRate(t *testing.T) {
	server := whole(&api{status: http.StatusOK}, &RateLimit{PerSecond: 0.001, Burst: 1})
	first := asking{path: pathRate, address: "192.0.2.1", key: "tk_a"}
	if first.of(server).Code != http.StatusOK || first.of(server).Code != http.StatusTooManyRequests {
		t.Error("the rate limit is not enforced")
	}
	if (asking{path: pathRate, address: "192.0.2.1", key: "tk_b"}).of(server).Code != http.StatusTooManyRequests {
		t.Error("a key that was not validated has a bucket")
	}
	if (asking{path: pathRate, address: "192.0.2.2"}).of(server).Code != http.StatusOK {
		t.Error("another address waits")
	}
}

func TestGuessingIsRateLimited(t *testing.T) {
	api := &api{status: http.StatusOK}
	server := newServer(checker(api, &bytes.Buffer{}), &RateLimit{PerSecond: 0.001, Burst: 3}, 100)
	server.guesses = newLimiter(&RateLimit{PerSecond: 0.001, Burst: 3}, 100)
	if (asking{path: pathKey, key: "tk_good", address: "192.0.2.1"}).of(server).Code != http.StatusOK {
		t.Fatal("a good key is refused")
	}
	api.set(http.StatusUnauthorized)
	codes := map[int]int{}
	for _, guess := range []string{"tk_1", "tk_2", "tk_3", "tk_4", "tk_5"} {
		codes[asking{path: pathKey, key: guess, address: "192.0.2.1"}.of(server).Code]++
	}
	if codes[http.StatusUnauthorized] != 3 || codes[http.StatusTooManyRequests] != 2 || api.count() != 4 {
		t.Errorf("got %v after %d questions", codes, api.count())
	}
	if (asking{path: pathKey, key: "tk_good", address: "192.0.2.1"}).of(server).Code != http.StatusOK {
		t.Error("the guesses of one client block another behind the same address")
	}
}

// Behind a gateway all clients have its address.
func TestRequestsWithoutAKeyKeepNoNewKeyFromBeingChecked(t *testing.T) {
	server := whole(&api{status: http.StatusOK}, &RateLimit{PerSecond: 0.001, Burst: 2})
	codes := map[int]int{}
	for range 5 {
		codes[asking{path: pathKey, address: "192.0.2.1"}.of(server).Code]++
		codes[asking{path: pathRate, address: "192.0.2.1"}.of(server).Code]++
	}
	if codes[http.StatusTooManyRequests] != 8 {
		t.Errorf("got %v", codes)
	}
	if response := (asking{path: pathKey, key: "tk_new", address: "192.0.2.1"}).of(server); response.Code != http.StatusOK {
		t.Errorf("a new key got %d", response.Code)
	}
}

func TestAsManyKeysAsTheFilesRateMayBeRefusedWithoutKeepingOthersOut(t *testing.T) {
	api := &api{status: http.StatusUnauthorized}
	server := whole(api, &RateLimit{PerSecond: 0.001, Burst: 2})
	for range 20 {
		if response := (asking{path: pathKey, key: "tk_guess", address: "192.0.2.1"}).of(server); response.Code != http.StatusUnauthorized {
			t.Fatalf("a refused key got %d", response.Code)
		}
	}
	api.set(http.StatusOK)
	if response := (asking{path: pathKey, key: "tk_new", address: "192.0.2.1"}).of(server); response.Code != http.StatusOK {
		t.Errorf("a new key got %d", response.Code)
	}
	if response := (asking{path: pathRate, address: "192.0.2.1"}).of(server); response.Code != http.StatusOK {
		t.Errorf("a request without a key got %d", response.Code)
	}
	for limits, want := range map[RateLimit]RateLimit{
		{PerSecond: 0.5, Burst: 1}:   {PerSecond: 10, Burst: 100},
		{PerSecond: 50, Burst: 1000}: {PerSecond: 50, Burst: 1000},
	} {
		if got := *guessesOf(&limits); got != want {
			t.Errorf("%v gives %v", limits, got)
		}
	}
}

func TestRetryAfterOfTheAPI(t *testing.T) {
	for text, want := range map[string]time.Duration{"7": 7 * time.Second, "": time.Second, "-1": time.Second, "soon": time.Second, "99999999": time.Second} {
		if got := retryAfter(text); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}

func TestTheBodyOfAValidationRequest(t *testing.T) {
	if got := normalizeHost("Web.Example."); got != "web.example" {
		t.Errorf("got %q", got)
	}
	if got := pathWithoutQuery("/v1/x?key=secret"); got != "/v1/x" {
		t.Errorf("got %q", got)
	}
	if got := pathWithoutQuery("/" + strings.Repeat("x", 9000)); len(got) != maxPath {
		t.Errorf("got %d bytes", len(got))
	}
}

func TestRun(t *testing.T) {
	spec := Spec{Version: Version, Socket: filepath.Join(t.TempDir(), "s"), Rate: &RateLimit{PerSecond: 1, Burst: 1}}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", spec.Socket)
	}}}
	for range 2 { // the second replaces the socket of the first
		listener, err := shimsocket.Listen(spec.Socket)
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- serve(t.Context(), listener, whole(&api{}, nil).handler()) }()
		response, err := client.Get("http://gate/nothing")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		listener.Close()
		<-served
	}
	if err := Run(t.Context(), Spec{Socket: "/nowhere/s"}, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("it runs without a socket")
	}
}

func FuzzBearer(f *testing.F) {
	for _, seed := range []string{"Bearer tk_a", "bearer  x", "Bearer", "Bearer a,b", "Bearer \x7f", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, sent := bearer([]string{value})
		if key != "" && (!sent || len(key) > maxKey || strings.ContainsAny(key, " ,\r\n\t\x00") || !strings.HasSuffix(strings.TrimSpace(value), key)) {
			t.Errorf("%q gives %q", value, key)
		}
	})
}

func FuzzCallerAt(f *testing.F) {
	f.Add("192.0.2.1")
	f.Add("fe80::1%x")
	f.Fuzz(func(t *testing.T, address string) {
		if got := callerOf(address); !strings.HasPrefix(got, "address ") || len(got) > 64 {
			t.Errorf("%q gives %q", address, got)
		}
	})
}
