package attestation

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"cloister.dev/guest/internal/initdata"
)

// NonceSize is the number of bytes of a nonce.
const NonceSize = 32

// maxFile is the largest file in bytes that is read: initdata contains a policy.
const maxFile = 1 << 20

// maxConcurrent is the number of requests to the attestation service at a time.
const maxConcurrent = 2

// ErrNoKey is returned until the enclave has generated its key.
var ErrNoKey = errors.New("the enclave has no TLS key yet")

// Document is the attestation document that clients get.
type Document struct {
	// Format is the URI of the format of Body.
	Format string `json:"format"`
	// Body is base64 of gzip of the evidence as the attestation service returned it, or
	// of the dummy report.
	Body string `json:"body"`
	// GPU is the same for the GPUs' evidence; absent without GPUs or TEE.
	GPU string `json:"gpu_body,omitempty"`
	// Measurement is the measurement document, in its canonical form.
	Measurement string `json:"measurement"`
	// Initdata is base64 of gzip of the initdata; absent if none is measured.
	Initdata string `json:"initdata,omitempty"`
	// Nonce is the nonce that the evidence binds; absent if none was given.
	Nonce string `json:"nonce,omitempty"`
}

// Dummy is the report without a TEE: no processor signs it, and anybody can forge it.
type Dummy struct {
	// ReportData is what evidence would bind, in hexadecimal digits.
	ReportData string `json:"report_data"`
	// TEE is None.
	TEE string `json:"tee"`
}

// Attester creates attestation documents.
type Attester struct {
	settings Settings
	service  *service
	// measurement is the SHA-256 of the measurement document, hostData the digest that the processor
	// reports; nil where it reports none of the enclave's.
	measurement [sha256.Size]byte
	hostData    []byte
	turns       chan struct{}
	// written is the hash of the key that attestation.json binds; nil means not written.
	written atomic.Pointer[[sha256.Size]byte]
}

// New returns an Attester. It fails if the settings are invalid.
func New(settings Settings) (*Attester, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	made := &Attester{settings: settings, measurement: sha256.Sum256(settings.Measurement), turns: make(chan struct{}, maxConcurrent)}
	if settings.Initdata != nil {
		var err error
		if made.hostData, err = initdata.Digest(initdataAlgorithms[settings.TEE], settings.Initdata); err != nil {
			return nil, err
		}
	}
	if settings.TEE != TEENone {
		made.service = newService(settings.Service)
	}
	return made, nil
}

func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	return content, nil
}

// ReportData returns what evidence binds: the SHA-256 of the public key of the certificate
// (its SubjectPublicKeyInfo; zeros if no key is bound), then the SHA-256 of the measurement
// document's digest followed by the nonce, if one was given.
func ReportData(key [sha256.Size]byte, measurement, nonce []byte) []byte {
	second := sha256.Sum256(append(bytes.Clone(measurement), nonce...))
	return append(key[:], second[:]...)
}

// Document returns the attestation document that binds the enclave's TLS key, its
// measurement and a nonce; nil means no nonce.
func (a *Attester) Document(ctx context.Context, nonce []byte) (Document, error) {
	if nonce != nil && len(nonce) != NonceSize {
		return Document{}, fmt.Errorf("a nonce has %d bytes", NonceSize)
	}
	key, err := a.key()
	if err != nil {
		return Document{}, err
	}
	reportData := ReportData(key, a.measurement[:], nonce)
	report, gpu, err := a.report(ctx, reportData)
	if err != nil {
		return Document{}, err
	}
	return Document{
		Format:      formats[a.settings.TEE],
		Body:        pack(report),
		GPU:         pack(gpu),
		Measurement: string(a.settings.Measurement),
		Initdata:    pack(a.settings.Initdata),
		Nonce:       hex.EncodeToString(nonce),
	}, nil
}

// report requests evidence, or returns the dummy report.
func (a *Attester) report(ctx context.Context, reportData []byte) ([]byte, []byte, error) {
	if a.service == nil {
		report, err := json.Marshal(Dummy{ReportData: hex.EncodeToString(reportData), TEE: TEENone})
		return report, nil, err
	}
	select {
	case a.turns <- struct{}{}:
		defer func() { <-a.turns }()
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("the attestation service is busy: %w", ctx.Err())
	}
	report, err := a.evidence(ctx, reportData)
	if err != nil || a.settings.GPUs == 0 {
		return report, nil, err
	}
	gpu, err := a.service.gpuEvidence(ctx, reportData)
	return report, gpu, err
}

// evidence requests evidence and compares its claims with the expected ones.
func (a *Attester) evidence(ctx context.Context, reportData []byte) ([]byte, error) {
	evidence, err := a.service.evidence(ctx, reportData)
	if err != nil {
		return nil, err
	}
	found, err := readEvidence(a.settings.TEE, evidence)
	if err != nil {
		return nil, err
	}
	return evidence, found.compare(reportData, a.hostData)
}

// CheckResult is the result of a boot stage.
type CheckResult struct {
	// Skipped means that there is nothing to check.
	Skipped bool
	// Detail is a human-readable result.
	Detail string
}

// CheckCPU is the boot stage cpu-attestation: it requests evidence that binds no key yet.
// An error is the reason why the boot has failed.
func (a *Attester) CheckCPU(ctx context.Context) (CheckResult, error) {
	if a.service == nil {
		return CheckResult{Skipped: true, Detail: "The host has no trusted execution environment: nothing is confidential."}, nil
	}
	if _, err := a.evidence(ctx, ReportData([sha256.Size]byte{}, a.measurement[:], nil)); err != nil {
		return CheckResult{}, err
	}
	if a.settings.Initdata == nil {
		return CheckResult{Detail: "Evidence of " + a.settings.TEE + " was obtained for the node; it does not measure a single enclave."}, nil
	}
	return CheckResult{Detail: "Evidence of " + a.settings.TEE + " was obtained; it reports the published initdata."}, nil
}

// CheckGPU is the boot stage gpu-attestation.
func (a *Attester) CheckGPU(ctx context.Context) (CheckResult, error) {
	switch {
	case a.settings.GPUs == 0:
		return CheckResult{Skipped: true, Detail: "The enclave has no GPUs."}, nil
	case a.service == nil:
		return CheckResult{Skipped: true, Detail: "The host has no trusted execution environment: its GPUs are not confidential."}, nil
	}
	if _, err := a.service.gpuEvidence(ctx, ReportData([sha256.Size]byte{}, a.measurement[:], nil)); err != nil {
		return CheckResult{}, err
	}
	return CheckResult{Detail: "Evidence of the GPUs was obtained."}, nil
}

// key returns the fingerprint of the enclave's TLS key; zeros if it is not known.
func (a *Attester) key() ([sha256.Size]byte, error) {
	var key [sha256.Size]byte
	if a.settings.Key == "" {
		return key, nil
	}
	content, err := readBounded(a.settings.Key)
	if errors.Is(err, os.ErrNotExist) {
		return key, ErrNoKey
	}
	if err != nil {
		return key, err
	}
	fingerprint, err := hex.DecodeString(string(bytes.TrimSpace(content)))
	if err != nil || len(fingerprint) != len(key) {
		return key, fmt.Errorf("%s does not contain a SHA-256 in hexadecimal digits", a.settings.Key)
	}
	copy(key[:], fingerprint)
	return key, nil
}

// pack compresses and encodes content for a document; empty stays empty.
func pack(content []byte) string {
	if len(content) == 0 {
		return ""
	}
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, _ = writer.Write(content) // writes to a buffer do not fail
	_ = writer.Close()
	return base64.StdEncoding.EncodeToString(packed.Bytes())
}
