package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cloister.dev/guest/internal/frontdoor/apiclient"
)

const (
	host  = "web.acme.containers.example"
	token = "org-acme/web-a-1/a-token-of-tests"
)

// api is an API with a CA, over TLS. Its next responses can be set.
type api struct {
	*httptest.Server
	t   *testing.T
	key *ecdsa.PrivateKey
	ca  *x509.Certificate

	mutex sync.Mutex
	// token is the one that is accepted.
	token    string
	requests [][]byte
	// answers are the first responses, in order; certificates follow.
	answers []func(http.ResponseWriter)
	// now is the issue time, life the lifetime of the certificates.
	now  func() time.Time
	life time.Duration
	// change alters a certificate before it is signed.
	change func(*x509.Certificate) *x509.Certificate
	// signed is the key that is certified instead of the request's; nil means the request's.
	signed any
}

func newAPI(t *testing.T) *api {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	server := &api{t: t, token: token, key: key, ca: ca, now: time.Now, life: time.Hour, change: func(c *x509.Certificate) *x509.Certificate { return c }}
	server.Server = httptest.NewTLSServer(http.HandlerFunc(server.serve))
	t.Cleanup(server.Close)
	return server
}

func (a *api) serve(writer http.ResponseWriter, request *http.Request) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if request.URL.Path != endpoint || request.Header.Get("Authorization") != "Bearer "+a.token {
		a.t.Errorf("%s with %q", request.URL.Path, request.Header.Get("Authorization"))
	}
	var body struct {
		CSR string `json:"csr"`
	}
	data, _ := io.ReadAll(request.Body)
	if err := json.Unmarshal(data, &body); err != nil {
		a.t.Error(err)
	}
	a.requests = append(a.requests, []byte(body.CSR))
	if len(a.answers) > 0 {
		next := a.answers[0]
		a.answers = a.answers[1:]
		next(writer)
		return
	}
	respond(http.StatusOK, 0, map[string]string{"certificate": a.sign([]byte(body.CSR)), "not_after": "x"})(writer)
}

func (a *api) sign(request []byte) string {
	block, _ := pem.Decode(request)
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || csr.CheckSignature() != nil {
		a.t.Errorf("request: %v", err)
	}
	public := csr.PublicKey
	if a.signed != nil {
		public = a.signed
	}
	template := a.change(&x509.Certificate{SerialNumber: big.NewInt(int64(len(a.requests)) + 1), DNSNames: csr.DNSNames,
		NotBefore: a.now(), NotAfter: a.now().Add(a.life)})
	der, err := x509.CreateCertificate(rand.Reader, template, a.ca, public, a.key)
	if err != nil {
		a.t.Error(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func respond(status, after int, body any) func(http.ResponseWriter) {
	return func(writer http.ResponseWriter) {
		if after > 0 {
			writer.Header().Set("Retry-After", fmt.Sprint(after))
		}
		writer.WriteHeader(status)
		_ = json.NewEncoder(writer).Encode(body)
	}
}

// sidecar is a sidecar with a clock that advances when it waits.
type sidecar struct {
	*runner
	api    *api
	clock  time.Time
	waits  []time.Duration
	cancel context.CancelFunc
	// after is called before each wait with its number, from 1.
	after func(int)
}

func newSidecar(t *testing.T, server *api) *sidecar {
	folder := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	place := filepath.Join(folder, "certificate")
	if err := os.Mkdir(place, 0o755); err != nil {
		t.Fatal(err)
	}
	spec := Spec{
		Version: Version, TokenFile: write("token", token+"\n"), Hostnames: []string{host}, Directory: place,
		TerminationFile: filepath.Join(folder, "ended"),
		API: apiclient.Address{URL: strings.Replace(server.URL, "127.0.0.1", "example.com", 1),
			ConnectTo: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, CAFile: "/ca.pem", Authorities: []byte(ca)},
	}
	spec.ShimStore = filepath.Join(place, "shim", "issuer")
	if err := spec.Validate(); err != nil {
		t.Fatal(err)
	}
	client, err := apiclient.NewClient(spec.API)
	if err != nil {
		t.Fatal(err)
	}
	it := &sidecar{api: server, clock: time.Now().Truncate(time.Second)}
	it.runner = newRunner(spec, client, slog.New(slog.DiscardHandler))
	it.runner.now = func() time.Time { return it.clock }
	it.runner.jitter = func() float64 { return 0 }
	server.now = it.runner.now
	return it
}

// runs runs the sidecar until the given number of waits, and returns its error.
func (it *sidecar) runs(waits int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	it.waits, it.failures, it.next = nil, 0, time.Time{}
	it.wait = func(_ context.Context, pause time.Duration) {
		if pause > 0 {
			it.waits = append(it.waits, pause.Round(time.Second))
		}
		if it.after != nil {
			it.after(len(it.waits))
		}
		if len(it.waits) == waits {
			cancel()
			return
		}
		it.clock = it.clock.Add(max(pause, 0))
	}
	return it.run(ctx)
}

func (it *sidecar) read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(it.place.path(name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (it *sidecar) status(t *testing.T) Status {
	t.Helper()
	var status Status
	if err := json.Unmarshal(it.read(t, statusFile), &status); err != nil {
		t.Fatal(err)
	}
	return status
}
