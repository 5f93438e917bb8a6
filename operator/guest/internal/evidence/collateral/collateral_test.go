package collateral

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-sev-guest/abi"
	"github.com/google/go-sev-guest/kds"
	spb "github.com/google/go-sev-guest/proto/sevsnp"
	"github.com/google/go-tdx-guest/pcs"
	"github.com/google/go-tdx-guest/testing/testdata"

	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/evidence/teetest"
)

var now = time.Now()

func addresses(t *testing.T, format string, report []byte) map[string]string {
	t.Helper()
	list, err := requiredFor(format, report)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, each := range list {
		found[each.kind] = each.address
	}
	return found
}

// TestAddressesAreThoseOfTheMakersLibraries compares with the libraries that verify evidence.
func TestAddressesAreThoseOfTheMakersLibraries(t *testing.T) {
	for product, line := range map[spb.SevProduct_SevProductName]string{spb.SevProduct_SEV_PRODUCT_MILAN: "Milan", spb.SevProduct_SEV_PRODUCT_GENOA: "Genoa"} {
		raw := make([]byte, abi.ReportSize)
		for index := range raw {
			raw[index] = byte(index)
		}
		family, model, _ := abi.FmsFromCpuid1Eax(abi.MaskedCpuid1EaxFromSevProduct(&spb.SevProduct{Name: product}))
		raw[0x188], raw[0x189] = family, model
		for signer, kind := range map[byte]abi.ReportSigner{0: abi.VcekReportSigner, 4: abi.VlekReportSigner} {
			raw[0x48] = signer
			found := addresses(t, attestdoc.CPUSEVSNP, raw)
			want := map[string]string{attestdoc.AMDCertChain: kds.ProductCertChainURL(kind, line), attestdoc.AMDCRL: kds.CrlLinkByKey(line, kind)}
			if kind == abi.VcekReportSigner {
				want[attestdoc.AMDVCEK] = kds.VCEKCertURL(line, raw[0x1A0:0x1E0], kds.TCBVersion(binary.LittleEndian.Uint64(raw[0x180:])))
			}
			for name, address := range want {
				if found[name] != address {
					t.Errorf("%s: %s, want %s", name, found[name], address)
				}
			}
			if len(found) != len(want) {
				t.Errorf("%v", found)
			}
		}
	}
	found := addresses(t, attestdoc.CPUTDX, testdata.RawQuote)
	want := map[string]string{
		attestdoc.IntelTCBInfo: pcs.TcbInfoURL("50806f000000"), attestdoc.IntelQEIdentity: pcs.QeIdentityURL(),
		attestdoc.IntelPCKCRL: pcs.PckCrlURL("platform"), attestdoc.IntelRootCRL: rootListAddress,
	}
	for name, address := range want {
		if found[name] != address {
			t.Errorf("%s: %s, want %s", name, found[name], address)
		}
	}
}

func TestTurinHasAShorterChipAndAnotherPart(t *testing.T) {
	raw := make([]byte, abi.ReportSize)
	raw[0x188], raw[0x189] = 0x1A, 0x02
	copy(raw[0x180:], []byte{1, 2, 3, 4, 0, 0, 0, 5})
	copy(raw[0x1A0:], bytes.Repeat([]byte{0xAB}, 64))
	want := "https://kdsintf.amd.com/vcek/v1/Turin/" + strings.Repeat("ab", 8) + "?fmcSPL=1&blSPL=2&teeSPL=3&snpSPL=4&ucodeSPL=5"
	if found := addresses(t, attestdoc.CPUSEVSNP, raw); found[attestdoc.AMDVCEK] != want {
		t.Errorf("%v", found)
	}
}

func TestEvidenceThatNamesNoProcessor(t *testing.T) {
	unknown, unsigned := make([]byte, abi.ReportSize), make([]byte, abi.ReportSize)
	unsigned[0x188], unsigned[0x189], unsigned[0x48] = 0x19, 0x01, 7<<2
	for name, each := range map[string]struct {
		format string
		report []byte
	}{
		"short": {attestdoc.CPUSEVSNP, nil}, "unknown product": {attestdoc.CPUSEVSNP, unknown}, "signed by nobody": {attestdoc.CPUSEVSNP, unsigned},
		"no certificate": {attestdoc.CPUTDX, []byte("x")}, "no PEM": {attestdoc.CPUTDX, []byte("-----BEGIN CERTIFICATE-----")},
		"another certificate": {attestdoc.CPUTDX, otherCertificate(t)}, "none": {attestdoc.CPUNone, nil},
	} {
		if list, err := requiredFor(each.format, each.report); err == nil {
			t.Errorf("%s: %v", name, list)
		}
	}
}

func otherCertificate(t *testing.T) []byte {
	t.Helper()
	made, err := teetest.NewSNP(now)
	if err != nil {
		t.Fatal(err)
	}
	return made.CertChain()
}

// world is a machine with an attestation service, and the API with what the vendors publish.
type world struct {
	published map[string][]byte
	headers   map[string]string
	away      map[string]bool
	requests  []string
	keeper    *Keeper
}

func newWorld(t *testing.T, tee string, evidence []byte, published map[string][]byte) *world {
	t.Helper()
	made := &world{published: published, away: map[string]bool{}, headers: map[string]string{
		attestdoc.IntelTCBInfo: "Tcb-Info-Issuer-Chain", attestdoc.IntelQEIdentity: "Sgx-Enclave-Identity-Issuer-Chain", attestdoc.IntelPCKCRL: "Sgx-Pck-Crl-Issuer-Chain",
	}}
	service := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) { _, _ = writer.Write(evidence) }))
	t.Cleanup(service.Close)
	api := httptest.NewServer(made)
	t.Cleanup(api.Close)
	made.keeper = &Keeper{
		Spec: Spec{TEE: tee, Service: service.URL}, Client: http.DefaultClient, At: func(path string) string { return api.URL + path },
		Token: func() (string, error) { return "token", nil }, Path: filepath.Join(t.TempDir(), "collateral.json"), Log: slog.New(slog.DiscardHandler),
	}
	return made
}

// ServeHTTP responds as the API does.
func (w *world) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	address := request.URL.Query().Get("address")
	w.requests = append(w.requests, address)
	if request.URL.Path != endpoint || request.Header.Get("Authorization") != "Bearer token" {
		writer.WriteHeader(http.StatusUnauthorized)
		return
	}
	for kind, marker := range map[string]string{
		attestdoc.AMDVCEK: "blSPL", attestdoc.AMDCertChain: "cert_chain", attestdoc.AMDCRL: "Milan/crl", attestdoc.IntelTCBInfo: "/tcb?",
		attestdoc.IntelQEIdentity: "/qe/identity", attestdoc.IntelPCKCRL: "/pckcrl?", attestdoc.IntelRootCRL: "RootCA.der",
	} {
		if !strings.Contains(address, marker) || w.away[kind] {
			continue
		}
		if header := w.headers[kind]; header != "" {
			writer.Header().Set(header, url.QueryEscape(string(w.published[kind+"-issuer-chain"])))
		}
		_, _ = writer.Write(w.published[kind])
		return
	}
	writer.WriteHeader(http.StatusServiceUnavailable)
}

func (w *world) written(t *testing.T) map[string][]byte {
	t.Helper()
	content, err := os.ReadFile(w.keeper.Path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	found, err := attestdoc.ParseCollateral(content)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func worlds(t *testing.T) map[string]*world {
	t.Helper()
	snp, err := teetest.NewSNP(now.AddDate(-1, 0, 0))
	tdx, errTDX := teetest.NewTDX(now.AddDate(-1, 0, 0))
	raw, errReport := snp.Report(teetest.SNPOptions{ReportData: make([]byte, 64)})
	quote, errQuote := tdx.Quote(teetest.TDXOptions{})
	ofSNP, errSNP := snp.Collateral(now)
	ofTDX, errAnswers := tdx.Collateral(teetest.PCS{At: now})
	asSNP, errAs := teetest.ComponentsSNP(raw, nil)
	asTDX, errAsTDX := teetest.ComponentsTDX(quote)
	if err := errors.Join(err, errTDX, errReport, errQuote, errSNP, errAnswers, errAs, errAsTDX); err != nil {
		t.Fatal(err)
	}
	return map[string]*world{"SNP": newWorld(t, "SNP", asSNP, ofSNP), "TDX": newWorld(t, "TDX", asTDX, ofTDX)}
}

func TestTheFileHasWhatTheMakersPublish(t *testing.T) {
	for tee, made := range worlds(t) {
		if err := made.keeper.refresh(t.Context()); err != nil {
			t.Fatal(tee, err)
		}
		found := made.written(t)
		if len(found) != len(made.published) {
			t.Errorf("%s: %d of %d", tee, len(found), len(made.published))
		}
		for kind, data := range made.published {
			if !bytes.Equal(found[kind], data) {
				t.Errorf("%s: %s is %x", tee, kind, sha256.Sum256(found[kind]))
			}
		}
	}
}

func TestWhatCannotBeHadStaysAsItWas(t *testing.T) {
	for tee, made := range worlds(t) {
		for kind := range made.published {
			made.away[kind] = kind != attestdoc.AMDCRL && kind != attestdoc.IntelPCKCRL
		}
		if err := made.keeper.refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "returned 503") {
			t.Errorf("%s: %v", tee, err)
		}
		if found := made.written(t); len(found) != map[string]int{"SNP": 1, "TDX": 2}[tee] {
			t.Errorf("%s: %d pieces", tee, len(found))
		}
		clear(made.away)
		if err := made.keeper.refresh(t.Context()); err != nil || len(made.written(t)) != len(made.published) {
			t.Errorf("%s: %v", tee, err)
		}
		for kind := range made.published {
			made.away[kind] = true
		}
		if err := made.keeper.refresh(t.Context()); err == nil || len(made.written(t)) != len(made.published) {
			t.Errorf("%s: %v: what was there is gone", tee, err)
		}
	}
}

func TestAnAnswerWithoutItsChainIsNotTaken(t *testing.T) {
	made := worlds(t)["TDX"]
	made.headers = nil
	if err := made.keeper.refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "Tcb-Info-Issuer-Chain is missing") {
		t.Errorf("%v", err)
	}
	if found := made.written(t); len(found) != 1 || found[attestdoc.IntelRootCRL] == nil {
		t.Errorf("%v", found)
	}
}

func TestInvalidSpecs(t *testing.T) {
	for _, spec := range []Spec{{"None", ""}, {"SGX", "http://127.0.0.1:1"}, {"SNP", ""}, {"TDX", "http://10.0.0.1:1"}} {
		if spec.Validate() == nil {
			t.Errorf("%+v is taken", spec)
		}
	}
	if err := (Spec{"SNP", "http://127.0.0.1:8006"}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestOnlyTheMakersAreFetchedFrom(t *testing.T) {
	for _, address := range []string{"http://kdsintf.amd.com/", "https://example.com/", "https://kdsintf.amd.com.example.com/", "https://kdsintf.amd.com:444/", "%"} {
		if _, _, err := FromVendors(address); err == nil || !strings.Contains(err.Error(), "vendor") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestTheListIsAsInADocument(t *testing.T) {
	made := worlds(t)["SNP"]
	if err := made.keeper.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	content, _ := os.ReadFile(made.keeper.Path)
	var listed []attestdoc.Collateral
	if err := json.Unmarshal(content, &listed); err != nil || !slices.Equal(listed, attestdoc.CollateralOf(made.published)) {
		t.Errorf("%v %v", listed, err)
	}
	if information, err := os.Stat(made.keeper.Path); err != nil || information.Mode().Perm() != 0o444 {
		t.Errorf("%v %v", information, err)
	}
}
