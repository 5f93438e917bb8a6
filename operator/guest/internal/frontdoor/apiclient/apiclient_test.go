package apiclient

import (
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"cloister.dev/guest/internal/foundation/measured"
)

func TestValidate(t *testing.T) {
	for _, text := range []string{
		"", "api.example.com", "ftp://192.0.2.1", "https://", "https://user:word@192.0.2.1", "https://192.0.2.1/api",
		"https://192.0.2.1/?a=b", "https://192.0.2.1/#a", "://", "https://[192.0.2.1",
	} {
		if (Address{URL: text}).Validate() == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	for _, address := range []Address{
		{URL: "http://192.0.2.1:8080"}, {URL: "https://192.0.2.1/"},
		{URL: "https://api.example.com", ConnectTo: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, CAFile: "/ca.crt"},
	} {
		if err := address.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestAt(t *testing.T) {
	for _, base := range []string{"http://192.0.2.1:81", "http://192.0.2.1:81/"} {
		if got := (Address{URL: base}).At("/api/x"); got != "http://192.0.2.1:81/api/x" {
			t.Errorf("got %s", got)
		}
	}
}

// testAddress returns the address of a test server with a host name that no name server resolves.
func testAddress(t *testing.T, server *httptest.Server, host string) Address {
	t.Helper()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	address := Address{URL: base.Scheme + "://" + net.JoinHostPort(host, base.Port()), ConnectTo: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	if base.Scheme == "https" {
		address.CAFile = "/ca.crt"
		address.Authorities = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	}
	return address
}

func TestThePrivateCAAndTheHostNameAreChecked(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	server.Config.ErrorLog = nil
	for host, good := range map[string]bool{"example.com": true, "other.test": false} {
		address := testAddress(t, server, host)
		client, err := NewClient(address)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Get(address.At("/"))
		if (err == nil) != good {
			t.Errorf("%s: %v", host, err)
		}
		if err == nil {
			response.Body.Close()
		}
		address.CAFile = ""
		if client, err = NewClient(address); err != nil {
			t.Fatal(err)
		}
		if response, err = client.Get(address.At("/")); err == nil {
			response.Body.Close()
			t.Error("a certificate of an unknown CA is accepted")
		}
	}
}

func TestNoRedirectIsFollowed(t *testing.T) {
	elsewhere := 0
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/" {
			elsewhere++
		}
		http.Redirect(writer, request, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	address := testAddress(t, server, "api.test")
	client, err := NewClient(address)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Post(address.At("/"), "text/plain", strings.NewReader("key"))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusTemporaryRedirect || elsewhere != 0 {
		t.Errorf("got %d, %d elsewhere", response.StatusCode, elsewhere)
	}
}

func TestAnUnreachableAddressIsSkipped(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	address := testAddress(t, server, "api.test")
	address.ConnectTo = []netip.Addr{netip.MustParseAddr("127.0.0.9"), address.ConnectTo[0]}
	client, err := NewClient(address)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Get(address.At("/"))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
}

func TestInvalidAuthoritiesAreRefused(t *testing.T) {
	for _, authorities := range []string{"", "none"} {
		if _, err := NewClient(Address{URL: "https://192.0.2.1", CAFile: "/ca.crt", Authorities: []byte(authorities)}); err == nil {
			t.Errorf("%q is accepted", authorities)
		}
	}
}

func TestAHostWithoutAnAddressIsRefused(t *testing.T) {
	if _, err := NewClient(Address{URL: "https://api.example.com"}); err == nil || !strings.Contains(err.Error(), "no address of api.example.com is known") {
		t.Errorf("got %v", err)
	}
}

// Where the API is, is not measured; who it is, is.
func TestAuthoritiesThatWereNotMeasuredAreRefused(t *testing.T) {
	address := Address{URL: "https://api.example.com", CAFile: filepath.Join(t.TempDir(), "ca.crt")}
	if _, err := address.Complete([]netip.Addr{netip.MustParseAddr("192.0.2.1")}); !errors.Is(err, measured.ErrNotMeasured) {
		t.Errorf("got %v", err)
	}
}
