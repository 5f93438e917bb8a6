package attestation

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"cloister.dev/guest/internal/evidence/teetest"
)

// standIn is a fake of the REST server of the guest components, which needs a processor
// with SNP or TDX. It speaks the same protocol over a socket.
type standIn struct {
	tee      string
	hostData []byte
	quote    uint16
	mutex    sync.Mutex
	requests int
	// vcek is the certificate that comes with evidence of SNP; nil means none.
	vcek []byte
	// change, if set, alters the response.
	change func(path string, writer http.ResponseWriter, reportData []byte) bool
}

func (s *standIn) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	s.mutex.Lock()
	s.requests++
	s.mutex.Unlock()
	query := request.URL.Query()
	reportData := []byte(query.Get("runtime_data"))
	if query.Get("encoding") == "base64" {
		decoded, err := base64.RawURLEncoding.DecodeString(query.Get("runtime_data"))
		if err != nil {
			writer.WriteHeader(http.StatusBadRequest)
			return
		}
		reportData = decoded
	}
	if s.change != nil && s.change(request.URL.Path, writer, reportData) {
		return
	}
	writer.Header().Set("Content-Type", "application/octet-stream")
	switch request.URL.Path {
	case "/aa/evidence":
		_, _ = writer.Write(s.evidence(reportData))
	case "/aa/additional-evidence":
		_ = json.NewEncoder(writer).Encode(map[string]any{"nvidia": map[string]any{"nonce": base64.StdEncoding.EncodeToString(reportData)}})
	default:
		writer.WriteHeader(http.StatusNotFound)
	}
}

func (s *standIn) evidence(reportData []byte) []byte {
	bound := make([]byte, reportDataSize)
	copy(bound, reportData)
	if s.tee == TEESNP {
		raw := make([]byte, snpReportSize)
		copy(raw[0x50:], bound)
		copy(raw[0xC0:], s.hostData)
		evidence, _ := teetest.ComponentsSNP(raw, s.vcek)
		return evidence
	}
	document := map[string]any{"quote": base64.StdEncoding.EncodeToString(tdQuote(s.quote, bound, s.hostData)), "cc_eventlog": nil}
	evidence, _ := json.Marshal(document)
	return evidence
}

// tdQuote returns a quote without a signature.
func tdQuote(version uint16, reportData, configID []byte) []byte {
	quote := make([]byte, quoteHeader, 2048)
	binary.LittleEndian.PutUint16(quote, version)
	binary.LittleEndian.PutUint32(quote[4:], quoteTEETDX)
	if version == 5 {
		quote = append(quote, make([]byte, quoteBodyHead)...)
	}
	body := make([]byte, bodySize)
	copy(body[bodyConfigID:], configID)
	copy(body[bodyReport:], reportData)
	return append(quote, body...)
}

// listen serves the fake on loopback and returns its address.
func (s *standIn) listen(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server.URL
}

// listenUnix serves the fake on a socket of the node.
func (s *standIn) listenUnix(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "api.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return "unix://" + path
}

func TestErrorsOfTheAttestationService(t *testing.T) {
	cases := map[string]struct {
		answer func(writer http.ResponseWriter)
		want   string
	}{
		"not enabled": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }, "agent.guest_components_rest_api=all"},
		"broken": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte("no TEE here"))
		}, "returned 500 for /aa/evidence: no TEE here"},
		"a redirect": {func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(http.StatusFound)
		}, "returned 302"},
		"nothing":  {func(w http.ResponseWriter) {}, "returned 0 bytes"},
		"too much": {func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, maxEvidence+1)) }, "evidence has between"},
		"no JSON":  {func(w http.ResponseWriter) { _, _ = w.Write([]byte("hello")) }, "not evidence of SNP"},
		"another TEE": {func(w http.ResponseWriter) {
			_, _ = w.Write((&standIn{tee: TEETDX, quote: 4}).evidence(nil))
		}, `not evidence of SNP: not a valid document: json: unknown field "cc_eventlog"`},
		"other data": {func(w http.ResponseWriter) {
			_, _ = w.Write((&standIn{tee: TEESNP, hostData: make([]byte, snpHostData)}).evidence([]byte("other")))
		}, "binds other data"},
	}
	for name, each := range cases {
		t.Run(name, func(t *testing.T) {
			fake := &standIn{tee: TEESNP, change: func(_ string, writer http.ResponseWriter, _ []byte) bool {
				each.answer(writer)
				return true
			}}
			_, err := newEnclave(t, fake, fake.listen(t)).attester(t).CheckCPU(t.Context())
			if err == nil || !strings.Contains(err.Error(), each.want) {
				t.Errorf("got %v, want %q", err, each.want)
			}
		})
	}
}

func TestAnUnreachableAttestationService(t *testing.T) {
	address := "unix://" + filepath.Join(t.TempDir(), "none.sock")
	_, err := newEnclave(t, &standIn{tee: TEETDX, quote: 4}, address).attester(t).CheckCPU(t.Context())
	if err == nil || !strings.Contains(err.Error(), "does not respond") {
		t.Errorf("got %v", err)
	}
}

func TestInvalidQuotes(t *testing.T) {
	quote := func(change func([]byte) []byte) []byte {
		whole := change(tdQuote(4, make([]byte, reportDataSize), make([]byte, tdxConfigID)))
		document, _ := json.Marshal(map[string]string{"quote": base64.StdEncoding.EncodeToString(whole)})
		return document
	}
	cases := map[string]struct {
		evidence []byte
		want     string
	}{
		"none":        {[]byte(`{}`), "missing or too short"},
		"cut":         {quote(func(q []byte) []byte { return q[:len(q)-1] }), "too short"},
		"a header":    {quote(func(q []byte) []byte { return q[:quoteHeader] }), "too short"},
		"of SGX":      {quote(func(q []byte) []byte { q[4] = 0; return q }), "TEE type 0x0"},
		"version 3":   {quote(func(q []byte) []byte { q[0] = 3; return q }), "version 3"},
		"no base64":   {[]byte(`{"quote": "?"}`), "not evidence of TDX"},
		"short and 5": {quote(func(q []byte) []byte { q[0] = 5; return q }), "too short"},
	}
	for name, each := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := readEvidence(TEETDX, each.evidence); err == nil || !strings.Contains(err.Error(), each.want) {
				t.Errorf("got %v, want %q", err, each.want)
			}
		})
	}
}

func FuzzEvidence(f *testing.F) {
	f.Add((&standIn{tee: TEESNP, hostData: make([]byte, snpHostData)}).evidence(nil))
	f.Add((&standIn{tee: TEETDX, quote: 4}).evidence(nil))
	f.Add((&standIn{tee: TEETDX, quote: 5}).evidence(nil))
	f.Fuzz(func(t *testing.T, evidence []byte) {
		for tee, size := range map[string]int{TEESNP: snpHostData, TEETDX: tdxConfigID} {
			found, err := readEvidence(tee, evidence)
			if err == nil && (len(found.reportData) != reportDataSize || len(found.hostData) != size) {
				t.Errorf("%s: fields of %d and %d bytes", tee, len(found.reportData), len(found.hostData))
			}
		}
	})
}
