package verify

import (
	"crypto/sha512"
	"crypto/x509"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-tdx-guest/abi"
	tpb "github.com/google/go-tdx-guest/proto/tdx"
	"github.com/google/go-tdx-guest/verify"

	"cloister.dev/guest/internal/evidence/attestdoc"
)

// intelRoot is Intel's root certificate, which Intel publishes as Intel_SGX_Provisioning_Certification_RootCA.
//
//go:embed intel_root.pem
var intelRoot []byte

// Bits of the TD's attributes. Each of the lowest eight gives the host a view into the machine: debugging, or
// one of the kinds of profiling.
const (
	tdDebug       uint64 = 0xff
	tdNoException uint64 = 1 << 28 // SEPT_VE_DISABLE
	tdMigratable  uint64 = 1 << 29
	tdPKS         uint64 = 1 << 30
	tdPerfmon     uint64 = 1 << 63
	// tdPermitted are the attributes that open nothing to the host: those for protection keys and performance
	// counters let only the guest itself use what they name.
	tdPermitted = tdNoException | tdPKS | tdPerfmon
)

// Bits of XFAM, the parts of the processor's state that a TD has. x87 and SSE are in every TD.
const (
	xfamRequired uint64 = 0x3
	// xfamPermitted adds AVX, AVX-512, PT, PKU, CET, user interrupts, LBR and AMX: the processor saves them
	// with the TD, so the host sees none of them.
	xfamPermitted uint64 = xfamRequired | 1<<2 | 0b111<<5 | 1<<8 | 1<<9 | 0b11<<11 | 1<<14 | 1<<15 | 0b11<<17
)

// runtimeRegisters is the number of runtime measurement registers that belong to the launch: the last of
// four is for what runs later.
const runtimeRegisters = 3

// checkTDX verifies a quote up to Intel, the level of its firmware, and what it reports of the machine.
func checkTDX(read attestdoc.Parts, want Expected) (signed, error) {
	if err := checkQuoteVersion(read.Report); err != nil {
		return signed{}, err
	}
	parsed, err := abi.QuoteToProto(read.Report)
	if err != nil {
		return signed{}, malformed(fmt.Errorf("cpu_evidence.report_base64: %w", err))
	}
	quote, isV4 := parsed.(*tpb.QuoteV4)
	if !isV4 {
		return signed{}, malformed(errors.New("cpu_evidence.report_base64: not a quote of version 4"))
	}
	if err := checkQuoteSignature(quote, want); err != nil {
		return signed{}, err
	}
	want.pass("signature", "the quote, by the key of this processor, up to Intel's root")
	if err := checkQuoteCollateral(quote, read, want); err != nil {
		return signed{}, err
	}
	want.pass("TCB and revocation", "Intel's levels and lists, valid at "+want.Now.UTC().Format(time.RFC3339))
	body := quote.GetTdQuoteBody()
	attributes, features := binary.LittleEndian.Uint64(body.GetTdAttributes()), binary.LittleEndian.Uint64(body.GetXfam())
	if err := checkAttributes(attributes); err != nil {
		return signed{}, err
	}
	want.pass("TD attributes", fmt.Sprintf("%#x, neither debugging nor migration", attributes))
	if err := checkFeatures(features); err != nil {
		return signed{}, err
	}
	want.pass("TD features", fmt.Sprintf("XFAM %#x", features))
	launch := sha512.New384()
	launch.Write(body.GetMrTd())
	for _, register := range body.GetRtmrs()[:runtimeRegisters] {
		launch.Write(register)
	}
	return signed{body.GetReportData(), launch.Sum(nil), body.GetMrConfigId(), "sha384"}, nil
}

// unreadVersion is a version of quotes that Intel's services make and the library does not read.
const unreadVersion = 5

// checkQuoteVersion refuses quotes of that version; what is of neither is malformed.
func checkQuoteVersion(quote []byte) error {
	if len(quote) < 2 || binary.LittleEndian.Uint16(quote) != unreadVersion {
		return nil
	}
	return refuse(ClassUnsupported, "evidence", "this program does not read quotes of version 5, only of version 4",
		"configure the host's quoting service for quotes of version 4, or use the cloister-verify of a release that names version 5 in docs/verify.md")
}

// checkAttributes refuses machines that were started in a way that opens them to their host, or in one whose
// meaning is not known.
func checkAttributes(attributes uint64) error {
	const step, remedy = "TD attributes", "use a machine that was started without that"
	switch {
	case attributes&tdDebug != 0:
		return refuse(ClassDebug, step, "the host may look into the machine, by debugging or profiling", remedy)
	case attributes&tdMigratable != 0:
		return refuse(ClassDebug, step, "the host may have the machine migrated", remedy)
	case attributes&tdNoException == 0:
		return refuse(ClassDebug, step, "the host may take pages from the running machine, which then gets an exception instead of ending (SEPT_VE_DISABLE is not set)", "start the machine with sept-ve-disable=on, as QEMU does by default")
	case attributes&^tdPermitted != 0:
		return refuse(ClassDebug, step, fmt.Sprintf("bits %#x are reserved, or of a feature that this program does not permit", attributes&^tdPermitted), unknownBits)
	}
	return nil
}

// unknownBits is the remedy for bits that a later processor or TDX module may define.
const unknownBits = "start the machine without them, or use the cloister-verify of a release that names them in docs/verify.md"

// checkFeatures refuses XFAM of no TD, and features whose meaning is not known.
func checkFeatures(features uint64) error {
	const step = "TD features"
	switch {
	case features&xfamRequired != xfamRequired:
		return refuse(ClassDebug, step, fmt.Sprintf("XFAM %#x lacks x87 or SSE, which every TD has", features), "trust nothing that this enclave reports: no TDX module starts such a machine")
	case features&^xfamPermitted != 0:
		return refuse(ClassDebug, step, fmt.Sprintf("bits %#x of XFAM are reserved, or of a feature that this program does not permit", features&^xfamPermitted), unknownBits)
	}
	return nil
}

// checkQuoteSignature verifies signature and chain.
func checkQuoteSignature(quote *tpb.QuoteV4, want Expected) error {
	if err := verify.TdxQuote(quote, &verify.Options{TrustedRoots: intelRoots(want), Now: want.Now}); err != nil {
		return refuse(ClassSignature, "signature", err.Error(), "trust nothing that this enclave reports: the evidence is not that of a processor of Intel, or was changed")
	}
	return nil
}

// checkQuoteCollateral verifies with what Intel publishes that nothing was revoked and that the level of
// processor, TDX module and quoting enclave is up to date.
func checkQuoteCollateral(quote *tpb.QuoteV4, read attestdoc.Parts, want Expected) error {
	answers := &issuedAnswers{source: intelSource{source{read.Collateral, want.Fetch}}, now: want.Now}
	options := &verify.Options{
		TrustedRoots: intelRoots(want), Now: want.Now, Getter: answers,
		GetCollateral: true, CheckRevocations: !want.InsecureSkipRevocation,
	}
	err := verify.TdxQuote(quote, options)
	if answers.err != nil {
		err = answers.err
	}
	if err != nil {
		return refuse(ClassFirmware, "TCB and revocation", err.Error(), levelRemedy(err.Error()))
	}
	return nil
}

func intelRoots(want Expected) *x509.CertPool {
	if want.InsecureIntelRoots != nil {
		return want.InsecureIntelRoots
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(intelRoot) // an empty pool trusts nothing
	return pool
}

func contains(trusted [][]byte, launch []byte) bool {
	return slices.ContainsFunc(trusted, func(each []byte) bool { return slices.Equal(each, launch) })
}
