package attestation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloister.dev/guest/internal/evidence/attestdoc"
)

// enclave is an enclave in a directory of the test.
type enclave struct {
	directory   string
	settings    Settings
	measurement string
	initdata    []byte
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

var cpuFormats = map[string]string{
	TEENone: "https://cloister.dev/cpu-evidence/none/v1",
	TEESNP:  "https://cloister.dev/cpu-evidence/sev-snp/v1",
	TEETDX:  "https://cloister.dev/cpu-evidence/tdx/v1",
}

// newEnclave writes the files of an enclave; a fake service that has its own host data keeps it.
func newEnclave(t *testing.T, fake *standIn, address string) *enclave {
	t.Helper()
	made := &enclave{directory: t.TempDir(), measurement: `{"debug":false,"version":"cloister.dev/measurement/v1"}`}
	made.settings = Settings{TEE: TEENone, Key: filepath.Join(made.directory, "tls.spki"), Measurement: []byte(made.measurement)}
	if fake != nil {
		made.settings.TEE, made.settings.Service = fake.tee, address
		made.initdata = []byte("version = \"0.1.0\"\n\n[data]\n\"measurement.json\" = '''\n" + made.measurement + "'''\n")
		short, long := sha256.Sum256(made.initdata), sha512.Sum384(made.initdata)
		hash := short[:]
		if fake.tee == TEETDX {
			hash = long[:]
		}
		made.settings.Initdata = made.initdata
		if fake.hostData == nil {
			fake.hostData = hash
		}
	}
	made.certify(t)
	return made
}

// certify issues the enclave a certificate with a new key.
func (e *enclave) certify(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	e.key = key
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"web.example"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if e.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	fingerprint := sha256.Sum256(e.certificate.RawSubjectPublicKeyInfo)
	if err := os.WriteFile(e.settings.Key, []byte(hex.EncodeToString(fingerprint[:])+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (e *enclave) attester(t *testing.T) *Attester {
	t.Helper()
	made, err := New(e.settings)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (e *enclave) expected(nonce []byte) expected {
	return expected{cpuFormats[e.settings.TEE], e.measurement, e.initdata, e.certificate, nonce}
}

// ask sends a client's request.
func ask(t *testing.T, attester http.Handler, query string) (int, []byte) {
	t.Helper()
	recorder := httptest.NewRecorder()
	attester.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/.well-known/cloister-attestation"+query, nil))
	return recorder.Code, recorder.Body.Bytes()
}

var machines = map[string]func() *standIn{
	"none":          func() *standIn { return nil },
	"SNP":           func() *standIn { return &standIn{tee: TEESNP} },
	"TDX, quote v4": func() *standIn { return &standIn{tee: TEETDX, quote: 4} },
	"TDX, quote v5": func() *standIn { return &standIn{tee: TEETDX, quote: 5} },
}

// spec: 28.1, 28.2
func TestAClientVerifiesTheDocument(t *testing.T) {
	nonce := sha256.Sum256([]byte("asked now"))
	other := sha256.Sum256([]byte("asked before"))
	for name, machine := range machines {
		t.Run(name, func(t *testing.T) {
			fake, address := machine(), ""
			if fake != nil {
				address = fake.listen(t)
			}
			made := newEnclave(t, fake, address)
			attester := made.attester(t)
			code, plain := ask(t, attester, "")
			if err := verify(plain, made.expected(nil)); code != http.StatusOK || err != nil {
				t.Fatalf("without a nonce: %d %v", code, err)
			}
			code, bound := ask(t, attester, "?nonce="+hex.EncodeToString(nonce[:]))
			if err := verify(bound, made.expected(nonce[:])); code != http.StatusOK || err != nil {
				t.Fatalf("with a nonce: %d %v", code, err)
			}
			refused := map[string]expected{
				"another nonce":      made.expected(other[:]),
				"no nonce":           made.expected(nil),
				"another key":        made.expected(nonce[:]),
				"the debug enclave":  made.expected(nonce[:]),
				"another kind of it": made.expected(nonce[:]),
			}
			stranger := newEnclave(t, nil, "").certificate
			change(refused, "another key", func(e *expected) { e.certificate = stranger })
			change(refused, "the debug enclave", func(e *expected) { e.measurement = strings.Replace(e.measurement, "false", "true", 1) })
			change(refused, "another kind of it", func(e *expected) { e.format = "https://cloister.dev/cpu-evidence/other/v1" })
			for what, want := range refused {
				if err := verify(bound, want); err == nil {
					t.Errorf("a client takes it for %s", what)
				}
			}
		})
	}
}

func change(all map[string]expected, what string, apply func(*expected)) {
	one := all[what]
	apply(&one)
	all[what] = one
}

func TestAMachineStartedWithOtherInitdataFailsTheCheck(t *testing.T) {
	for name, machine := range machines {
		fake := machine()
		if fake == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			fake.hostData = make([]byte, map[string]int{TEESNP: snpHostData, TEETDX: tdxConfigID}[fake.tee])
			attester := newEnclave(t, fake, fake.listen(t)).attester(t)
			if _, err := attester.CheckCPU(t.Context()); err == nil || !strings.Contains(err.Error(), "started with other initdata") {
				t.Errorf("got %v", err)
			}
			if code, _ := ask(t, attester, ""); code != http.StatusServiceUnavailable {
				t.Errorf("the document was served: %d", code)
			}
		})
	}
}

func TestEvidenceOfTheNode(t *testing.T) {
	fake := &standIn{tee: TEETDX, quote: 4, hostData: make([]byte, tdxConfigID)}
	made := newEnclave(t, fake, fake.listenUnix(t))
	made.settings.Initdata, made.initdata = nil, nil
	attester := made.attester(t)
	checked, err := attester.CheckCPU(t.Context())
	if err != nil || checked.Skipped || !strings.Contains(checked.Detail, "does not measure a single enclave") {
		t.Fatalf("%+v %v", checked, err)
	}
	if _, response := ask(t, attester, ""); verify(response, made.expected(nil)) != nil {
		t.Errorf("%s", response)
	}
}

// spec: 28.4, 28.5
func TestBootStages(t *testing.T) {
	withoutTEE := newEnclave(t, nil, "")
	withoutTEE.settings.GPUs = 1
	snp := &standIn{tee: TEESNP}
	with := newEnclave(t, snp, snp.listen(t))
	withGPU := *with
	withGPU.settings.GPUs = 8
	blind := &standIn{tee: TEESNP, change: func(path string, writer http.ResponseWriter, _ []byte) bool {
		return path == "/aa/additional-evidence"
	}}
	withoutGPUEvidence := newEnclave(t, blind, blind.listen(t))
	withoutGPUEvidence.settings.GPUs = 1
	cases := map[string]struct {
		enclave  *enclave
		cpu, gpu string // detail; "skipped: …", "failed: …"
	}{
		"no TEE":          {withoutTEE, "skipped: The host has no trusted", "skipped: The host has no trusted"},
		"SNP":             {with, "Evidence of SNP was obtained; it reports", "skipped: The enclave has no GPUs."},
		"SNP and GPUs":    {&withGPU, "Evidence of SNP was obtained; it reports", "Evidence of the GPUs was obtained."},
		"no GPU evidence": {withoutGPUEvidence, "Evidence of SNP", "failed: the attestation service returned 0 bytes"},
	}
	for name, each := range cases {
		t.Run(name, func(t *testing.T) {
			attester := each.enclave.attester(t)
			for want, check := range map[string]func() (CheckResult, error){
				each.cpu:          func() (CheckResult, error) { return attester.CheckCPU(t.Context()) },
				"gpu " + each.gpu: func() (CheckResult, error) { return attester.CheckGPU(t.Context()) },
			} {
				checked, err := check()
				result := checked.Detail
				switch {
				case err != nil:
					result = "failed: " + err.Error()
				case checked.Skipped:
					result = "skipped: " + result
				}
				if !strings.HasPrefix(result, strings.TrimPrefix(want, "gpu ")) {
					t.Errorf("got %q, want %q", result, want)
				}
			}
		})
	}
}

func TestGPUEvidenceIsInTheDocument(t *testing.T) {
	fake := &standIn{tee: TEESNP}
	made := newEnclave(t, fake, fake.listen(t))
	made.settings.GPUs = 1
	document, err := made.attester(t).Document(t.Context(), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	evidence, err := unpack(document.DeviceEvidence)
	if err != nil || !strings.Contains(string(evidence), `"nvidia"`) {
		t.Errorf("%s %v", evidence, err)
	}
}

// spec: 28.1
func TestNonces(t *testing.T) {
	attester := newEnclave(t, nil, "").attester(t)
	good := strings.Repeat("aB", 32)
	cases := map[string]int{
		"":                                  http.StatusOK,
		"?nonce=" + good:                    http.StatusOK,
		"?other=1":                          http.StatusOK,
		"?nonce=" + strings.Repeat("0", 64): http.StatusBadRequest,
		"?nonce=":                           http.StatusBadRequest,
		"?nonce=" + good[1:]:                http.StatusBadRequest,
		"?nonce=" + good + "00":             http.StatusBadRequest,
		"?nonce=" + good[:62] + "zz":        http.StatusBadRequest,
		"?nonce=" + good[:62] + "%0a0":      http.StatusBadRequest,
		"?nonce=a&nonce=" + good:            http.StatusBadRequest,
		"?nonce=%zz":                        http.StatusBadRequest,
	}
	for query, want := range cases {
		code, body := ask(t, attester, query)
		if code != want {
			t.Errorf("%q: %d %s", query, code, body)
		}
		if want == http.StatusBadRequest && !strings.Contains(string(body), `"type":"invalid_request_error"`) {
			t.Errorf("%q: %s", query, body)
		}
	}
	recorder := httptest.NewRecorder()
	attester.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	if recorder.Code != http.StatusMethodNotAllowed || recorder.Header().Get("Allow") == "" {
		t.Errorf("POST: %d", recorder.Code)
	}
	if _, err := attester.Document(t.Context(), []byte("short"), ""); err == nil {
		t.Error("a short nonce was taken")
	}
}

func TestTheFileIsRewrittenForANewKey(t *testing.T) {
	fake := &standIn{tee: TEESNP}
	made := newEnclave(t, fake, fake.listen(t))
	attester, directory := made.attester(t), t.TempDir()
	path := filepath.Join(directory, FileName)
	for range 2 {
		if err := attester.Write(t.Context(), directory); err != nil {
			t.Fatal(err)
		}
	}
	if fake.requests != 1 {
		t.Errorf("%d requests for one key", fake.requests)
	}
	first, _ := os.ReadFile(path)
	if err := verify(first, made.expected(nil)); err != nil {
		t.Error(err)
	}
	made.certify(t)
	if err := attester.Write(t.Context(), directory); err != nil {
		t.Fatal(err)
	}
	second, _ := os.ReadFile(path)
	if err := verify(second, made.expected(nil)); err != nil {
		t.Error(err)
	}
	if information, err := os.Stat(path); err != nil || information.Mode().Perm() != 0o644 {
		t.Errorf("%v %v", information, err)
	}
	if left, _ := os.ReadDir(directory); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	if err := attester.Write(t.Context(), filepath.Join(directory, "none")); err != nil {
		t.Errorf("nothing is to be written for the same key: %v", err)
	}
	if err := made.attester(t).Write(t.Context(), filepath.Join(directory, "none")); err == nil {
		t.Error("a directory that is not there was written to")
	}
}

func TestWithoutATLSKeyThereIsNoDocument(t *testing.T) {
	made := newEnclave(t, nil, "")
	if err := os.Remove(made.settings.Key); err != nil {
		t.Fatal(err)
	}
	code, body := ask(t, made.attester(t), "")
	if code != http.StatusServiceUnavailable || !strings.Contains(string(body), "not generated its keys yet") {
		t.Errorf("%d %s", code, body)
	}
	for _, content := range []string{"", "text", strings.Repeat("0", 62), strings.Repeat("0", 66)} {
		if err := os.WriteFile(made.settings.Key, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, body := ask(t, made.attester(t), ""); code != http.StatusServiceUnavailable {
			t.Errorf("%q: %d %s", content, code, body)
		}
	}
}

func TestInvalidSettingsAreRefused(t *testing.T) {
	good := newEnclave(t, &standIn{tee: TEESNP}, "http://127.0.0.1:8006").settings
	cases := map[string]struct {
		change func(*Settings)
		want   string
	}{
		"tee":                  {func(s *Settings) { s.TEE = "SGX" }, "attestation.tee"},
		"service of no TEE":    {func(s *Settings) { s.TEE = TEENone }, "must be empty without a TEE"},
		"initdata of no TEE":   {func(s *Settings) { s.TEE, s.Service = TEENone, "" }, "nothing measures it"},
		"service elsewhere":    {func(s *Settings) { s.Service = "http://10.0.0.1:8006" }, "attestation.service"},
		"service with a path":  {func(s *Settings) { s.Service = "http://127.0.0.1:8006/aa" }, "attestation.service"},
		"service without port": {func(s *Settings) { s.Service = "http://127.0.0.1" }, "attestation.service"},
		"no service":           {func(s *Settings) { s.Service = "" }, "attestation.service"},
		"a relative socket":    {func(s *Settings) { s.Service = "unix://run/a.sock" }, "path of a socket"},
		"a relative key":       {func(s *Settings) { s.Key = "tls.spki" }, "attestation.key"},
		"no key and no shim":   {func(s *Settings) { s.Key = "" }, "attestation.key"},
		"a relative HPKE key":  {func(s *Settings) { s.HPKE = "hpke.pub" }, "attestation.hpke"},
		"negative GPUs":        {func(s *Settings) { s.GPUs = -1 }, "attestation.gpus"},
	}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, each := range cases {
		t.Run(name, func(t *testing.T) {
			settings := good
			each.change(&settings)
			if err := settings.Validate(); err == nil || !strings.Contains(err.Error(), each.want) {
				t.Errorf("got %v, want %q", err, each.want)
			}
		})
	}
}

func TestTheDummyReportIsPinned(t *testing.T) {
	made := newEnclave(t, nil, "")
	document, err := made.attester(t).Document(t.Context(), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	report, err := base64.StdEncoding.DecodeString(document.CPU.Report)
	if want := `{"report_data":"` + document.Challenge.ReportData + `","tee":"None"}`; err != nil || string(report) != want {
		t.Errorf("got %s %v, want %s", report, err, want)
	}
	response, _ := json.Marshal(document)
	for _, absent := range []string{"initdata", `"device_evidence":"H4`, "nonce\"", "hpke"} {
		if strings.Contains(string(response), absent) {
			t.Errorf("absent is absent: %s in %s", absent, response)
		}
	}
}

func TestTheKeyForEncryptedBodiesIsBound(t *testing.T) {
	made := newEnclave(t, nil, "")
	made.settings.HPKE = filepath.Join(made.directory, "hpke.pub")
	attester := made.attester(t)
	// Evidence without it would be of an enclave that has no such key.
	if code, body := ask(t, attester, ""); code != http.StatusServiceUnavailable {
		t.Errorf("before there is a key: %d %s", code, body)
	}
	for _, key := range []string{strings.Repeat("ab", 32), strings.Repeat("cd", 32)} {
		if err := os.WriteFile(made.settings.HPKE, []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, response := ask(t, attester, "")
		parts, err := attestdoc.Parse(response)
		if err != nil || hex.EncodeToString(parts.HPKE) != key || verify(response, made.expected(nil)) != nil {
			t.Errorf("%q: %x %v", key, parts.HPKE, err)
		}
	}
	if err := os.WriteFile(made.settings.HPKE, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, body := ask(t, attester, ""); code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", code, body)
	}
}

// TestTheShimsOwnKeyIsBound has a shim that makes a key for each of its names, as Caddy does.
func TestTheShimsOwnKeyIsBound(t *testing.T) {
	for name, machine := range machines {
		t.Run(name, func(t *testing.T) {
			fake, service := machine(), ""
			if fake != nil {
				service = fake.listen(t)
			}
			checkTheShimsOwnKey(t, newEnclave(t, fake, service))
		})
	}
}

func checkTheShimsOwnKey(t *testing.T, made *enclave) {
	t.Helper()
	names := []string{"web.example", "other.example"}
	keys := map[string]*enclave{names[0]: newEnclave(t, nil, ""), names[1]: newEnclave(t, nil, "")}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		known := keys[hello.ServerName]
		return &tls.Certificate{Certificate: [][]byte{known.certificate.Raw}, PrivateKey: known.key}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() { _ = http.Serve(listener, http.NotFoundHandler()) }()
	made.settings.Key, made.settings.Hostnames = "", names
	made.settings.Shim = netip.MustParseAddrPort(listener.Addr().String())
	attester := made.attester(t)
	for host, name := range map[string]string{names[0]: names[0], names[1] + ":443": names[1], "unknown.example": names[0]} {
		recorder := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/.well-known/cloister-attestation", nil)
		request.Host = host
		attester.ServeHTTP(recorder, request)
		made.certificate = keys[name].certificate
		if err := verify(recorder.Body.Bytes(), made.expected(nil)); err != nil {
			t.Errorf("%s: %v", host, err)
		}
		made.certificate = keys[names[0]].certificate
		if name == names[1] && verify(recorder.Body.Bytes(), made.expected(nil)) == nil {
			t.Error("evidence for the key of one name passes for that of another")
		}
	}
	listener.Close()
	if code, body := ask(t, attester, ""); code != http.StatusServiceUnavailable || !strings.Contains(string(body), "not generated its keys yet") {
		t.Errorf("%d %s", code, body)
	}
	made.settings.Hostnames = nil
	if code, body := ask(t, made.attester(t), ""); code != http.StatusServiceUnavailable || !strings.Contains(string(body), "no host name") {
		t.Errorf("%d %s", code, body)
	}
}
