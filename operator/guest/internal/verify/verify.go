package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-sev-guest/abi"
	spb "github.com/google/go-sev-guest/proto/sevsnp"
	"github.com/google/go-sev-guest/verify"
	"github.com/google/go-sev-guest/verify/trust"

	"cloister.dev/guest/internal/attestation"
	"cloister.dev/guest/internal/measured"
)

// Expected is what the client knows before it reads a document.
type Expected struct {
	// Key is the SHA-256 of the SubjectPublicKeyInfo of its own TLS connection.
	Key [sha256.Size]byte
	// Nonce is the nonce that it sent.
	Nonce []byte
	// Measurement is the digest of the measurement document that it computed.
	Measurement [sha256.Size]byte
	// Launch are the launch measurements that it trusts.
	Launch [][]byte
	// Rules are the digests of rules for a machine's agent that it trusts; nil means those of this
	// release.
	Rules []string
	// Now is the time at which certificates must be valid.
	Now time.Time
	// Getter fetches AMD's revocation list; nil means that revocation is not checked.
	Getter trust.HTTPSGetter
	// InsecureRoots replaces AMD's roots, by product line; nil means AMD's.
	InsecureRoots map[string][]*trust.AMDRootCerts
}

// measuredFields are the fields of the measurement document that decide the verdict.
type measuredFields struct {
	Version   string            `json:"version"`
	Debug     bool              `json:"debug"`
	Documents map[string]string `json:"documents"`
	Host      struct {
		TEEUnit  string            `json:"teeUnit"`
		Initdata map[string]string `json:"initdata"`
	} `json:"host"`
}

// Check returns nil if the document proves what is expected, else a *Failure.
func Check(document []byte, want Expected) error {
	read, err := parse(document)
	if err != nil {
		return err
	}
	if read.Nonce != hex.EncodeToString(want.Nonce) {
		return refuse(ClassFreshness, "freshness", "the document is for another nonce", "request it again; if that repeats, something between you and the enclave replays old documents")
	}
	switch read.Format {
	case formatSNP:
	case formatDummy:
		return refuse(ClassNotConfidential, "evidence", "not confidential: the enclave runs without a TEE", "send nothing that whoever runs the cluster must not read")
	case formatTDX:
		return refuse(ClassUnsupported, "evidence", "this program does not check evidence of TDX", "follow docs/measurement.md with Intel's tools")
	default:
		return malformed(fmt.Errorf("format %q is not known", read.Format))
	}
	enclave, err := checkMeasurement(read.Measurement, want)
	if err != nil {
		return err
	}
	evidence, err := readSNP(read.body)
	if err != nil {
		return malformed(err)
	}
	if err := checkSignature(evidence, want); err != nil {
		return err
	}
	return checkReport(evidence.GetReport(), read, enclave, want)
}

// checkMeasurement returns what of the measurement document decides the verdict.
func checkMeasurement(document string, want Expected) (measuredFields, error) {
	const step = "measurement"
	if found := sha256.Sum256([]byte(document)); found != want.Measurement {
		return measuredFields{}, refuse(ClassMeasurement, step, fmt.Sprintf("the enclave says sha256:%x, expected is sha256:%x", found, want.Measurement), "compute it again with `cloister config measure`; otherwise another release or host runs")
	}
	var read measuredFields
	if err := json.Unmarshal([]byte(document), &read); err != nil {
		return measuredFields{}, malformed(err)
	}
	trusted := want.Rules
	if trusted == nil {
		trusted = publishedRules
	}
	switch {
	case read.Version != measured.Version:
		return measuredFields{}, refuse(ClassMeasurement, step, fmt.Sprintf("it is of version %q, not %s: what its parts run by may not be measured", read.Version, measured.Version), "relaunch the container with a release that measures its documents, and use the cloister-verify of that release")
	case read.Debug:
		return measuredFields{}, refuse(ClassDebug, step, "it is a debug enclave: people may log in", "use an enclave without debug")
	case read.Host.TEEUnit != "Pod":
		return measuredFields{}, refuse(ClassNotConfidential, step, "the hardware measures the node, not the enclave", "use a Host with teeUnit: Pod")
	case !slices.Contains(trusted, read.Host.Initdata[policyFile]):
		return measuredFields{}, refuse(ClassNotConfidential, step,
			fmt.Sprintf("rules with the digest %q judge what whoever runs the node requests: they may let it start other programs in the machine", read.Host.Initdata[policyFile]),
			"use a Host without policy.rego of its own, and the cloister-verify of the release that runs the enclave")
	}
	return read, nil
}

// checkSignature verifies the report up to the processor's maker.
func checkSignature(evidence *spb.Attestation, want Expected) error {
	options := &verify.Options{
		DisableCertFetching: true,
		Now:                 want.Now,
		TrustedRoots:        want.InsecureRoots,
	}
	if err := verify.SnpAttestation(evidence, options); err != nil {
		return refuse(ClassSignature, "signature", err.Error(), "trust nothing that this enclave says: the evidence is not that of a processor of AMD, or was changed")
	}
	if want.Getter == nil {
		return nil
	}
	options.CheckRevocations, options.Getter = true, want.Getter
	if err := verify.SnpAttestation(evidence, options); err != nil {
		return refuse(ClassFirmware, "revocation", err.Error(), "allow requests to kdsintf.amd.com, or ask AMD why the certificate was revoked")
	}
	return nil
}

// checkReport compares the signed fields.
func checkReport(report *spb.Report, read content, enclave measuredFields, want Expected) error {
	policy, err := abi.ParseSnpPolicy(report.GetPolicy())
	if err != nil {
		return malformed(err)
	}
	if policy.Debug || policy.MigrateMA {
		return refuse(ClassDebug, "guest policy", "the host may read the machine's memory, by debugging or migration", "use a machine that was started without them")
	}
	if report.GetVmpl() != 0 {
		return refuse(ClassLaunch, "privilege level", fmt.Sprintf("the report is of VMPL %d", report.GetVmpl()), "use a machine whose guest runs at VMPL 0")
	}
	if !slices.ContainsFunc(want.Launch, func(trusted []byte) bool { return bytes.Equal(trusted, report.GetMeasurement()) }) {
		return refuse(ClassLaunch, "launch measurement", fmt.Sprintf("%x is not on your list", report.GetMeasurement()), "add it to --platform if you have computed it from firmware and kernel that you trust")
	}
	bound := attestation.ReportData(want.Key, want.Measurement[:], want.Nonce)
	if signed := report.GetReportData(); !bytes.Equal(signed[:sha256.Size], bound[:sha256.Size]) {
		return refuse(ClassKey, "TLS key", "the evidence binds another key than that of this connection", "send nothing: somebody else ends the connection")
	} else if !bytes.Equal(signed, bound) {
		return refuse(ClassFreshness, "report data", "the evidence does not bind this measurement and nonce", "request it again; if that repeats, old evidence is replayed")
	}
	if digest := sha256.Sum256(read.initdata); !bytes.Equal(report.GetHostData(), digest[:]) {
		return foreignInitdata(errors.New("the machine was started with other initdata than the document shows"))
	}
	if err := checkInitdata(read.initdata, read.Measurement, enclave); err != nil {
		return foreignInitdata(err)
	}
	return nil
}

func foreignInitdata(err error) error {
	return refuse(ClassInitdata, "initdata", err.Error(), "trust nothing that this enclave says")
}
