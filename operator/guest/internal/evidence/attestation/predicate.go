package attestation

import (
	"context"
	"encoding/hex"

	"cloister.dev/guest/internal/evidence/attestdoc"
)

// PredicateService is the service name under which clients of Tinfoil look for an enclave.
const PredicateService = "tinfoil"

// predicates are the formats that these clients read, by the machine's kind; there is none without a TEE.
var predicates = map[string]string{
	TEESNP: "https://tinfoil.sh/predicate/sev-snp-guest/v2",
	TEETDX: "https://tinfoil.sh/predicate/tdx-guest/v2",
}

// PredicateDocument is the attestation document that existing clients of the service name tinfoil read.
// It binds only the keys: neither a nonce nor the measurement, for which the machine's initdata stands.
type PredicateDocument struct {
	// Format is the address of the predicate.
	Format string `json:"format"`
	// Body is base64 of gzip of the evidence as the processor made it, whose report data is the SHA-256 of
	// the TLS key's SubjectPublicKeyInfo and the key for encrypted bodies (zeros if there is none).
	Body string `json:"body"`
}

// plain returns the document for requests without a nonce, and for the file.
func (a *Attester) plain(ctx context.Context, keys attestdoc.CryptoMaterial) (any, error) {
	if a.settings.Name == PredicateService && predicates[a.settings.TEE] != "" {
		return a.predicate(ctx, keys)
	}
	return a.documentOf(ctx, attestdoc.Claim{Keys: keys, Measurement: a.settings.Measurement, Initdata: a.settings.Initdata})
}

func (a *Attester) predicate(ctx context.Context, keys attestdoc.CryptoMaterial) (any, error) {
	reportData := make([]byte, reportDataSize)
	if _, err := hex.Decode(reportData, []byte(keys.TLSSPKI+keys.HPKEX25519)); err != nil {
		return nil, err
	}
	leave, err := a.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	found, err := a.evidence(ctx, reportData)
	if err != nil {
		return nil, err
	}
	return PredicateDocument{Format: predicates[a.settings.TEE], Body: attestdoc.Pack(found.report)}, nil
}
