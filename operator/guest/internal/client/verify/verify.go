package verify

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-sev-guest/kds"
	"github.com/google/go-sev-guest/verify/trust"

	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/evidence/initdata"
	"cloister.dev/guest/internal/foundation/measured"
)

// Expected is what the client knows before it reads a document.
type Expected struct {
	// Key is the SHA-256 of the SubjectPublicKeyInfo of its own TLS connection.
	Key [sha256.Size]byte
	// Nonce is the nonce that it sent.
	Nonce []byte
	// Measurement is the digest of the measurement document that it computed.
	Measurement [sha256.Size]byte
	// Launch are the launch measurements that it trusts: the report's with SNP, and with TDX the SHA-384
	// of MRTD and the first three runtime registers.
	Launch [][]byte
	// Rules are the digests of rules for a machine's agent that it trusts; nil means those of this
	// release.
	Rules []string
	// Now is the time at which certificates and collateral must be valid.
	Now time.Time
	// Fetch fetches collateral that the document does not have; nil means that nothing is fetched.
	Fetch Fetch
	// Passed is called with each step that passed and what it compared; nil if not needed.
	Passed func(step, compared string)
	// MinimumTCB is the least level of an SNP processor's firmware, each part separately.
	MinimumTCB kds.TCBParts
	// InsecureSkipRevocation means that revocation lists are not checked.
	InsecureSkipRevocation bool
	// InsecureRoots replaces AMD's roots, by product line; nil means AMD's.
	InsecureRoots map[string][]*trust.AMDRootCerts
	// InsecureIntelRoots replaces Intel's root; nil means Intel's.
	InsecureIntelRoots *x509.CertPool
}

// Measured are the fields of the measurement document that decide the verdict, and what a note tells of.
type Measured struct {
	Version   string            `json:"version"`
	Debug     bool              `json:"debug"`
	GPUs      int               `json:"gpus"`
	Documents map[string]string `json:"documents"`
	Host      struct {
		TEEUnit  string            `json:"teeUnit"`
		Initdata map[string]string `json:"initdata"`
	} `json:"host"`
}

// Check returns what the enclave of a document measures if the document proves what is expected, else a *Failure.
func Check(read attestdoc.Parts, want Expected) (enclave Measured, err error) {
	// The libraries that read evidence trust the sizes in it in places: anyone could end a verifier, and a
	// proxy with it, by a few bytes.
	defer func() {
		if reason := recover(); reason != nil {
			err = malformed(fmt.Errorf("the evidence cannot be read: %v", reason))
		}
	}()
	want.pass("document", fmt.Sprintf("%d bytes of the format %s, each digest that of its part", read.Size, attestdoc.Format))
	if !bytes.Equal(read.Nonce, want.Nonce) {
		return enclave, refuse(ClassFreshness, "freshness", "the document is for another nonce", "request it again; if that repeats, something between you and the enclave replays old documents")
	}
	want.pass("freshness", fmt.Sprintf("nonce %x", want.Nonce))
	check, err := checkerOf(read.CPUFormat)
	if err != nil {
		return enclave, err
	}
	want.pass("evidence", read.CPUFormat)
	if enclave, err = checkMachine(read.Measurement, want); err != nil {
		return enclave, err
	}
	want.pass("measurement", fmt.Sprintf("sha256:%x, without debug, the Pod is the machine, rules %s", want.Measurement, enclave.Host.Initdata[policyFile]))
	found, err := check(read, want)
	if err != nil {
		return enclave, err
	}
	return enclave, checkSigned(found, read, enclave, want)
}

// pass reports that a step passed.
func (e Expected) pass(step, compared string) {
	if e.Passed != nil {
		e.Passed(step, compared)
	}
}

// checkerOf returns what verifies evidence of a format.
func checkerOf(format string) (func(attestdoc.Parts, Expected) (signed, error), error) {
	const step = "evidence"
	switch format {
	case attestdoc.CPUSEVSNP:
		return checkSNP, nil
	case attestdoc.CPUTDX:
		return checkTDX, nil
	case attestdoc.CPUNone:
		return nil, refuse(ClassNotConfidential, step, "not confidential: the enclave runs without a TEE", "send nothing that the cluster's operator must not read")
	}
	return nil, refuse(ClassUnsupported, step, fmt.Sprintf("this program does not check evidence of the format %s", format), "use the cloister-verify of the release that runs the enclave")
}

// checkMeasurement returns what of the measurement document decides the verdict. It must be the expected
// one, of an enclave without logins.
func checkMeasurement(document []byte, want Expected) (Measured, error) {
	const step = "measurement"
	if found := sha256.Sum256(document); found != want.Measurement {
		return Measured{}, refuse(ClassMeasurement, step, fmt.Sprintf("the enclave reports sha256:%x, expected is sha256:%x", found, want.Measurement), "compute it again with `cloister config measure`; otherwise another release or host runs")
	}
	var read Measured
	if err := json.Unmarshal(document, &read); err != nil {
		return Measured{}, malformed(err)
	}
	switch {
	case read.Version != measured.Version:
		return Measured{}, refuse(ClassMeasurement, step, fmt.Sprintf("it is of version %q, not %s: what its parts run by may not be measured", read.Version, measured.Version), "relaunch the container with a release that measures its documents, and use the cloister-verify of that release")
	case read.Debug:
		return Measured{}, refuse(ClassDebug, step, "it is a debug enclave: people may log in", "use an enclave without debug")
	}
	return read, nil
}

// checkMachine is checkMeasurement for an enclave that is a confidential machine of its own, in which the
// agent judges the host by trusted rules.
func checkMachine(document []byte, want Expected) (Measured, error) {
	const step = "measurement"
	read, err := checkMeasurement(document, want)
	if err != nil {
		return Measured{}, err
	}
	trusted := want.Rules
	if trusted == nil {
		trusted = publishedRules
	}
	switch {
	case read.Host.TEEUnit != "Pod":
		return Measured{}, refuse(ClassNotConfidential, step, "the hardware measures the node, not the enclave", "use a Host with teeUnit: Pod")
	case !slices.Contains(trusted, read.Host.Initdata[policyFile]):
		return Measured{}, refuse(ClassNotConfidential, step,
			fmt.Sprintf("rules with the digest %q judge the requests of the node's operator: they may allow it to start other programs in the machine", read.Host.Initdata[policyFile]),
			"use a Host without policy.rego of its own, and the cloister-verify of the release that runs the enclave")
	}
	return read, nil
}

// checkSigned compares the signed fields.
func checkSigned(found signed, read attestdoc.Parts, enclave Measured, want Expected) error {
	if !contains(want.Launch, found.launch) {
		return refuse(ClassLaunch, "launch measurement", fmt.Sprintf("%x is not on your list", found.launch), "add it to --platform if you have computed it from firmware and kernel that you trust")
	}
	want.pass("launch measurement", fmt.Sprintf("%x", found.launch))
	if !bytes.Equal(found.reportData, read.ReportData) {
		return refuse(ClassFreshness, "report data", "the evidence does not bind the document's keys, measurement, devices and nonce", "request it again; if that repeats, old evidence is replayed with another document")
	}
	want.pass("report data", fmt.Sprintf("%x", found.reportData))
	if read.TLSSPKI != want.Key {
		return refuse(ClassKey, "TLS key", "the evidence binds another key than that of this connection", "send nothing: another party ends the connection")
	}
	want.pass("TLS key", fmt.Sprintf("%x", want.Key))
	digest, err := initdata.Digest(found.algorithm, read.Initdata)
	if err != nil {
		return mismatchedInitdata(err)
	}
	if !bytes.Equal(found.hostData, digest) {
		return mismatchedInitdata(errors.New("the machine was started with other initdata than the document shows"))
	}
	if err := checkInitdata(read.Initdata, string(read.Measurement), enclave, found.algorithm); err != nil {
		return mismatchedInitdata(err)
	}
	want.pass("initdata", fmt.Sprintf("%s:%x, with this measurement, and %d files with the digests that it has", found.algorithm, digest, len(enclave.Host.Initdata)))
	return nil
}

func mismatchedInitdata(err error) error {
	return refuse(ClassInitdata, "initdata", err.Error(), "trust nothing that this enclave reports")
}
