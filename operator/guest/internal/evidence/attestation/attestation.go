package attestation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"sync/atomic"

	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/evidence/initdata"
)

// maxFile is the largest file in bytes that is read: initdata contains a policy.
const maxFile = 1 << 20

// maxConcurrent is the number of requests to the attestation service at a time.
const maxConcurrent = 2

// ErrNoKey is returned until the enclave has generated its keys.
var ErrNoKey = errors.New("the enclave has not generated its keys yet")

// Dummy is the report without a TEE: no processor signs it, and anyone can forge it.
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
	// hostData is the digest that the processor reports; nil where it reports none of the enclave's.
	hostData []byte
	turns    chan struct{}
	// written are the keys that attestation.json binds; nil means not written.
	written atomic.Pointer[attestdoc.CryptoMaterial]
}

// New returns an Attester. It fails if the settings are invalid.
func New(settings Settings) (*Attester, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	made := &Attester{settings: settings, turns: make(chan struct{}, maxConcurrent)}
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

// Document returns the attestation document that binds the enclave's keys, its measurement, its GPUs
// and a nonce; nil means no nonce. The TLS key is the one that the shim presents for a host name.
func (a *Attester) Document(ctx context.Context, nonce []byte, host string) (attestdoc.Document, error) {
	keys, err := a.keys(ctx, host)
	if err != nil {
		return attestdoc.Document{}, err
	}
	return a.documentOf(ctx, attestdoc.Claim{Nonce: nonce, Keys: keys, Measurement: a.settings.Measurement, Initdata: a.settings.Initdata})
}

func (a *Attester) documentOf(ctx context.Context, claim attestdoc.Claim) (attestdoc.Document, error) {
	if a.service == nil {
		return dummyDocument(claim)
	}
	leave, err := a.enter(ctx)
	if err != nil {
		return attestdoc.Document{}, err
	}
	defer leave()
	if a.settings.GPUs > 0 {
		challenge, err := claim.DeviceChallenge()
		if err != nil {
			return attestdoc.Document{}, err
		}
		if claim.DeviceEvidence, err = a.service.gpuEvidence(ctx, challenge); err != nil {
			return attestdoc.Document{}, err
		}
	}
	reportData, err := claim.ReportData()
	if err != nil {
		return attestdoc.Document{}, err
	}
	found, err := a.evidence(ctx, reportData)
	if err != nil {
		return attestdoc.Document{}, err
	}
	collateral, err := a.collateral(found.collateral)
	if err != nil {
		return attestdoc.Document{}, err
	}
	return claim.Document(found.format, found.report, collateral)
}

// enter waits for a turn at the attestation service; the result ends it.
func (a *Attester) enter(ctx context.Context) (func(), error) {
	select {
	case a.turns <- struct{}{}:
		return func() { <-a.turns }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("the attestation service is busy: %w", ctx.Err())
	}
}

// collateral returns what came with the evidence, and what is in the file.
func (a *Attester) collateral(found map[string][]byte) (map[string][]byte, error) {
	if a.settings.Collateral == "" {
		return found, nil
	}
	content, err := readBounded(a.settings.Collateral)
	if errors.Is(err, os.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	kept, err := attestdoc.ParseCollateral(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.settings.Collateral, err)
	}
	maps.Copy(kept, found)
	return kept, nil
}

func dummyDocument(claim attestdoc.Claim) (attestdoc.Document, error) {
	reportData, err := claim.ReportData()
	if err != nil {
		return attestdoc.Document{}, err
	}
	report, err := json.Marshal(Dummy{ReportData: hex.EncodeToString(reportData), TEE: TEENone})
	if err != nil {
		return attestdoc.Document{}, err
	}
	return claim.Document(attestdoc.CPUNone, report, nil)
}

// evidence requests evidence and compares what it binds with the expected data.
func (a *Attester) evidence(ctx context.Context, reportData []byte) (evidence, error) {
	found, err := a.service.evidence(ctx, a.settings.TEE, reportData)
	if err != nil {
		return evidence{}, err
	}
	return found, found.compare(reportData, a.hostData)
}

// CheckResult is the result of a boot stage.
type CheckResult struct {
	// Skipped means that there is nothing to check.
	Skipped bool
	// Detail is a human-readable result.
	Detail string
}

// unbound is a claim for the boot stages, in which there may be no key yet.
func (a *Attester) unbound() attestdoc.Claim {
	none := attestdoc.CryptoMaterial{TLSSPKI: hex.EncodeToString(make([]byte, sha256.Size))}
	return attestdoc.Claim{Keys: none, Measurement: a.settings.Measurement}
}

// CheckCPU is the boot stage cpu-attestation: it requests evidence that binds no key yet.
// An error is the reason why the boot has failed.
func (a *Attester) CheckCPU(ctx context.Context) (CheckResult, error) {
	if a.service == nil {
		return CheckResult{Skipped: true, Detail: "The host has no trusted execution environment: nothing is confidential."}, nil
	}
	reportData, err := a.unbound().ReportData()
	if err != nil {
		return CheckResult{}, err
	}
	if _, err := a.evidence(ctx, reportData); err != nil {
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
	challenge, err := a.unbound().DeviceChallenge()
	if err != nil {
		return CheckResult{}, err
	}
	if _, err := a.service.gpuEvidence(ctx, challenge); err != nil {
		return CheckResult{}, err
	}
	return CheckResult{Detail: "Evidence of the GPUs was obtained."}, nil
}
