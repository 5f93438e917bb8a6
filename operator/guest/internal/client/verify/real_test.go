package verify

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	snpdata "github.com/google/go-sev-guest/verify/testdata"
	"github.com/google/go-tdx-guest/abi"
	tpb "github.com/google/go-tdx-guest/proto/tdx"
	tdxtest "github.com/google/go-tdx-guest/testing"
	"github.com/google/go-tdx-guest/testing/testdata"

	"cloister.dev/guest/internal/evidence/attestdoc"
)

// realCollateral are Intel's answers of 2023 for the processor whose quote the library's tests have.
func realCollateral(t *testing.T) map[string][]byte {
	t.Helper()
	chain := func(header map[string][]string, name string) []byte {
		text, err := url.QueryUnescape(header[name][0])
		if err != nil {
			t.Fatal(err)
		}
		return []byte(text)
	}
	return map[string][]byte{
		attestdoc.IntelTCBInfo: testdata.TcbInfoBody, attestdoc.IntelTCBInfoChain: chain(tdxtest.TcbInfoHeader, "Tcb-Info-Issuer-Chain"),
		attestdoc.IntelQEIdentity: testdata.QeIdentityBody, attestdoc.IntelQEIdentityChain: chain(tdxtest.QeIdentityHeader, "Sgx-Enclave-Identity-Issuer-Chain"),
		attestdoc.IntelPCKCRL: testdata.PckCrlBody, attestdoc.IntelPCKCRLChain: chain(tdxtest.PckCrlHeader, "Sgx-Pck-Crl-Issuer-Chain"),
		attestdoc.IntelRootCRL: testdata.RootCrlBody,
	}
}

// TestAQuoteOfARealProcessor verifies a quote of 2023 with the root that is built in.
func TestAQuoteOfARealProcessor(t *testing.T) {
	parsed, err := abi.QuoteToProto(testdata.RawQuote)
	if err != nil {
		t.Fatal(err)
	}
	quote := parsed.(*tpb.QuoteV4)
	at := Expected{Now: time.Date(2023, time.July, 1, 1, 0, 0, 0, time.UTC)}
	if err := checkQuoteSignature(quote, at); err != nil {
		t.Fatal(err)
	}
	read := attestdoc.Parts{Collateral: realCollateral(t)}
	// The sample's collateral is of Intel and valid then; its levels are above those of the sample's processor.
	if err := checkQuoteCollateral(quote, read, at); err == nil || !strings.Contains(err.Error(), "no matching TCB level") {
		t.Errorf("the collateral is refused for another reason: %v", err)
	}
	later := Expected{Now: time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)}
	if err := checkQuoteCollateral(quote, read, later); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("collateral of 2023 is taken in 2026: %v", err)
	}
	quote.GetTdQuoteBody().GetReportData()[0] ^= 1
	refused(t, checkQuoteSignature(quote, at), ClassSignature)
}

// TestAReportOfARealProcessor verifies a report of 2022 with the roots that are built in.
func TestAReportOfARealProcessor(t *testing.T) {
	at := Expected{Now: time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC), InsecureSkipRevocation: true}
	var passed []string
	at.Passed = func(step, _ string) { passed = append(passed, step) }
	read := attestdoc.Parts{Report: snpdata.AttestationBytes, Collateral: map[string][]byte{attestdoc.AMDVCEK: snpdata.VcekBytes}}
	_, err := checkSNP(read, at)
	// Its machine may be debugged, which is the first thing that is wrong with it.
	refused(t, err, ClassDebug)
	if !slices.Equal(passed, []string{"signature"}) {
		t.Errorf("it passed %q", passed)
	}
	for byteAt := 0; byteAt < len(snpdata.AttestationBytes); byteAt += 16 {
		read.Report = slices.Clone(snpdata.AttestationBytes)
		read.Report[byteAt] ^= 1
		if _, err := checkSNP(read, at); err == nil || len(passed) != 1 {
			t.Fatalf("byte %d can be changed: %v", byteAt, err)
		}
	}
}
