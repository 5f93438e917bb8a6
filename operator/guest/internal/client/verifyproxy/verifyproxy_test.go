package verifyproxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-sev-guest/abi"

	"cloister.dev/guest/internal/client/enclaveconn"
	"cloister.dev/guest/internal/client/verify"
	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/evidence/teetest"
)

const (
	rules = "package agent_policy\n"
	pod   = "{}"
)

var launch = bytes.Repeat([]byte{9}, 48)

// enclave is a server with evidence of a test processor for its own key.
type enclave struct {
	t         *testing.T
	server    *httptest.Server
	processor *teetest.SNP
	// other serves the measurement of another enclave; unsigned damages the evidence.
	other, unsigned atomic.Bool
	requests        atomic.Int32
	// verified are the addresses of connections over which the document was requested.
	verified sync.Map
}

func newEnclave(t *testing.T) *enclave {
	t.Helper()
	processor, err := teetest.NewSNP(time.Now().AddDate(0, -1, 0))
	if err != nil {
		t.Fatal(err)
	}
	made := &enclave{t: t, processor: processor}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/cloister-attestation", made.attest)
	mux.HandleFunc("/echo", func(writer http.ResponseWriter, request *http.Request) {
		made.requests.Add(1)
		if _, verified := made.verified.Load(request.RemoteAddr); !verified {
			t.Error("a request came over a connection that was not verified")
		}
		body, _ := io.ReadAll(request.Body)
		fmt.Fprintf(writer, "%s %s %s %s", request.Method, request.Host, request.URL, body)
	})
	mux.HandleFunc("/stream", func(writer http.ResponseWriter, request *http.Request) {
		fmt.Fprintln(writer, "first")
		_ = http.NewResponseController(writer).Flush()
		<-request.Context().Done()
	})
	mux.HandleFunc("/upgrade", func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Connection", "Upgrade")
		writer.Header().Set("Upgrade", "echo")
		writer.WriteHeader(http.StatusSwitchingProtocols)
		connection, stream, err := http.NewResponseController(writer).Hijack()
		if err == nil {
			_, _ = io.Copy(connection, stream)
			_ = connection.Close()
		}
	})
	made.server = httptest.NewTLSServer(mux)
	t.Cleanup(made.server.Close)
	return made
}

// own gives the enclave a key that no other server has.
func (e *enclave) own(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	own := httptest.NewUnstartedServer(e.server.Config.Handler)
	own.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	own.StartTLS()
	t.Cleanup(own.Close)
	e.server = own
}

func (e *enclave) host() string { return strings.TrimPrefix(e.server.URL, "https://") }

func digestOf(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }

func (e *enclave) measurement() string {
	service := "cloister"
	if e.other.Load() {
		service = "other"
	}
	return fmt.Sprintf(`{"debug":false,"documents":{"pod.json":"%s"},"host":{"initdata":{"policy.rego":"%s"},"teeUnit":"Pod"},"service":"%s","version":"cloister.dev/measurement/v2"}`,
		digestOf(pod), digestOf(rules), service)
}

// attest responds with a document for the server's key.
func (e *enclave) attest(writer http.ResponseWriter, request *http.Request) {
	e.verified.Store(request.RemoteAddr, true)
	nonce, _ := hex.DecodeString(request.URL.Query().Get("nonce"))
	measurement := e.measurement()
	initdata := "version = \"0.1.0\"\nalgorithm = \"sha256\"\n\n[data]\n\"measurement.json\" = '''\n" + measurement +
		"'''\n\"policy.rego\" = '''\n" + rules + "\ncloister_pod := " + pod + "\n'''\n"
	spki := sha256.Sum256(e.server.Certificate().RawSubjectPublicKeyInfo)
	claim := attestdoc.Claim{
		Nonce: nonce, Keys: attestdoc.CryptoMaterial{TLSSPKI: hex.EncodeToString(spki[:])}, Measurement: []byte(measurement), Initdata: []byte(initdata),
	}
	reportData, err := claim.ReportData()
	if err != nil {
		e.t.Error(err)
	}
	hostData := sha256.Sum256([]byte(initdata))
	report, err := e.processor.Report(teetest.SNPOptions{Policy: abi.SnpPolicy{SMT: true}, ReportData: reportData, Launch: launch, HostData: hostData[:]})
	if err != nil {
		e.t.Error(err)
	}
	if e.unsigned.Load() {
		report[0x50] ^= 1
	}
	collateral, err := e.processor.Collateral(time.Now().Add(-time.Hour))
	if err != nil {
		e.t.Error(err)
	}
	document, err := claim.Document(attestdoc.CPUSEVSNP, report, collateral)
	if err != nil {
		e.t.Error(err)
	}
	_ = json.NewEncoder(writer).Encode(document)
}

// check verifies a new connection; whatever measurement signed evidence has is the expected one, so that
// a change is found only by the proxy.
func (e *enclave) check(ctx context.Context) (*enclaveconn.Connection, [sha256.Size]byte, error) {
	connection, err := enclaveconn.Open(ctx, enclaveconn.Target{Host: e.host(), Service: "cloister"})
	if err != nil {
		return nil, [sha256.Size]byte{}, &verify.Failure{Class: verify.ClassUnreachable, Step: "connect", Problem: err.Error(), Remedy: "wait"}
	}
	measurement := sha256.Sum256([]byte(e.measurement()))
	if err := e.judge(connection); err != nil {
		_ = connection.Close()
		return nil, measurement, err
	}
	return connection, measurement, nil
}

// judge returns the verifier's verdict about what a connection presented.
func (e *enclave) judge(connection *enclaveconn.Connection) error {
	read, err := verify.Read(connection.Document)
	if err == nil {
		_, err = verify.Check(read, verify.Expected{
			Key: connection.Key, Nonce: connection.Nonce, Measurement: sha256.Sum256([]byte(e.measurement())), Launch: [][]byte{launch},
			Rules: []string{digestOf(rules)}, Now: time.Now(), InsecureRoots: e.processor.Roots(),
		})
	}
	return err
}

// started returns a proxy that serves, and its address.
func started(t *testing.T, e *enclave) (*Proxy, string) {
	t.Helper()
	proxy := New(e.host(), Names{Listed: []string{"proxy.example"}}, e.check, log.New(io.Discard, "", 0))
	local := httptest.NewServer(proxy)
	t.Cleanup(local.Close)
	return proxy, local.URL
}

func get(t *testing.T, address string) (int, string) {
	t.Helper()
	response, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestRequestsGoOverVerifiedConnections(t *testing.T) {
	e := newEnclave(t)
	_, address := started(t, e)
	for range 3 {
		response, err := http.Post(address+"/echo?a=%2F", "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if want := "POST " + e.host() + " /echo?a=%2F body"; string(body) != want {
			t.Fatalf("%q instead of %q", body, want)
		}
	}
	if e.requests.Load() != 3 {
		t.Errorf("%d requests", e.requests.Load())
	}
}

// TestPagesOfOtherSitesGetNothing has requests that a browser sends for a page whose name leads here.
func TestPagesOfOtherSitesGetNothing(t *testing.T) {
	e := newEnclave(t)
	proxy, address := started(t, e)
	for host, status := range map[string]int{
		"evil.example": 421, "evil.example:80": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "192.0.2.1": 421, "[2001:db8::1]:80": 421,
		"evil.example@localhost": 421, "": 421, "localhost": 200, "LocalHost.:80": 200, "127.0.0.1:8080": 200, "127.8.8.8": 200, "[::1]:80": 200,
		"[::1]": 200, "[::ffff:127.0.0.1]": 200, "proxy.example": 200, "Proxy.Example:80": 200,
	} {
		request := httptest.NewRequest(http.MethodGet, address+"/echo", nil)
		request.Host = host
		response := httptest.NewRecorder()
		proxy.ServeHTTP(response, request)
		if response.Code != status {
			t.Errorf("%q: %d %s", host, response.Code, response.Body)
		}
		var found problem
		if status == 421 && (json.Unmarshal(response.Body.Bytes(), &found) != nil || found.Remedy == "" || found.Status != 421) {
			t.Errorf("%q: %s", host, response.Body)
		}
	}
	if (Names{Addresses: true}).have("evil.example") || !(Names{Addresses: true}).have("192.0.2.1:80") {
		t.Error("with any address, names are still only those that are listed")
	}
}

func TestARefusalNamesItsStep(t *testing.T) {
	e := newEnclave(t)
	e.unsigned.Store(true)
	_, address := started(t, e)
	status, body := get(t, address+"/echo")
	var found problem
	if err := json.Unmarshal([]byte(body), &found); err != nil {
		t.Fatal(err)
	}
	if status != http.StatusBadGateway || found.Step != "signature" || found.Code != verify.ClassSignature || found.Remedy == "" || e.requests.Load() != 0 {
		t.Fatalf("%d %s, %d requests passed", status, body, e.requests.Load())
	}
	e.unsigned.Store(false)
	if status, body := get(t, address+"/echo"); status != http.StatusOK {
		t.Errorf("%d %s after the enclave is honest again", status, body)
	}
}

func TestWhatCannotBeReachedCutsNothing(t *testing.T) {
	e := newEnclave(t)
	proxy, address := started(t, e)
	stream := open(t, address+"/stream")
	e.server.Listener.Close()
	if err := proxy.Recheck(t.Context()); err == nil {
		t.Fatal("it is not reachable")
	}
	if status, body := get(t, address+"/echo"); status != http.StatusBadGateway || !strings.Contains(body, `"code":10`) {
		t.Errorf("%d %s", status, body)
	}
	if proxy.Refused() != nil {
		t.Error(proxy.Refused())
	}
	_ = stream.Close()
}

// open returns the body of a stream whose first line has come.
func open(t *testing.T, address string) io.ReadCloser {
	t.Helper()
	response, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil || line != "first\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return response.Body
}

func TestAChangedMeasurementCutsEverything(t *testing.T) {
	e := newEnclave(t)
	proxy, address := started(t, e)
	stream, upgraded := open(t, address+"/stream"), upgrade(t, address)
	e.other.Store(true)
	if err := proxy.Recheck(t.Context()); err == nil || !strings.Contains(err.Error(), "changed from") {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(stream); err == nil {
		t.Error("the stream ended as if it were whole")
	}
	_ = upgraded.SetReadDeadline(time.Now().Add(10 * time.Second))
	if read, err := upgraded.Read(make([]byte, 1)); err == nil || read != 0 || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the upgraded connection is open: %v", err)
	}
	if status, body := get(t, address+"/echo"); status != http.StatusBadGateway || !strings.Contains(body, `"code":26`) {
		t.Errorf("%d %s", status, body)
	}
}

func TestAFailedVerificationCutsEverything(t *testing.T) {
	e := newEnclave(t)
	proxy, address := started(t, e)
	stream := open(t, address+"/stream")
	e.unsigned.Store(true)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go proxy.Watch(ctx, 10*time.Millisecond)
	if _, err := io.ReadAll(stream); err == nil {
		t.Error("the stream ended as if it were whole")
	}
	if failure := proxy.Refused(); failure == nil || failure.Class != verify.ClassSignature {
		t.Error(failure)
	}
}

// upgrade returns a connection that speaks another protocol through the proxy.
func upgrade(t *testing.T, address string) net.Conn {
	t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	fmt.Fprint(connection, "GET /upgrade HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	reader := bufio.NewReader(connection)
	response, err := http.ReadResponse(reader, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", response, err)
	}
	fmt.Fprint(connection, "hello")
	heard := make([]byte, 5)
	if _, err := io.ReadFull(reader, heard); err != nil || string(heard) != "hello" {
		t.Fatalf("%q, %v", heard, err)
	}
	return connection
}
