package attestdoc

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
)

// ReportDataAlgorithm names how ReportData is computed. It is also the first bytes of what is hashed,
// so that no other protocol's hash can be taken for one.
const ReportDataAlgorithm = "https://cloister.dev/attestation/report-data/v1"

// deviceChallenge is the same for the nonce of device evidence.
const deviceChallenge = "https://cloister.dev/attestation/device-challenge/v1"

// ReportData returns the 64 bytes that evidence binds: the SHA-256 of the algorithm's name, the nonce
// (32 zero bytes for nil) and the digests of crypto material, measurement and device evidence, and
// then 32 zero bytes. It fails if the nonce or a digest has another length.
func ReportData(nonce []byte, endorsed Endorsed) ([]byte, error) {
	hash := sha256.New()
	hash.Write([]byte(ReportDataAlgorithm))
	given, err := nonceBytes(nonce)
	if err != nil {
		return nil, err
	}
	hash.Write(given)
	for _, each := range []struct{ name, digest string }{
		{"crypto_material", endorsed.CryptoMaterial}, {"measurement", endorsed.Measurement}, {"device_evidence", endorsed.DeviceEvidence},
	} {
		digest, err := readHex(each.digest, sha256.Size)
		if err != nil {
			return nil, fmt.Errorf("cpu_evidence.endorsed.%s: %w", each.name, err)
		}
		hash.Write(digest)
	}
	return hash.Sum(make([]byte, 0, ReportDataSize))[:ReportDataSize], nil
}

// DeviceChallenge returns the 32 bytes that evidence of devices binds. It is requested first, since the
// report data binds its digest; so this has the nonce and the other two digests.
func DeviceChallenge(nonce, cryptoMaterial, measurement []byte) ([]byte, error) {
	given, err := nonceBytes(nonce)
	if err != nil {
		return nil, err
	}
	material, measured := sha256.Sum256(cryptoMaterial), sha256.Sum256(measurement)
	challenge := sha256.Sum256(bytes.Join([][]byte{[]byte(deviceChallenge), given, material[:], measured[:]}, nil))
	return challenge[:], nil
}

// nonceBytes returns the nonce's bytes in what is hashed. Zeros stand for none, so they cannot be one.
func nonceBytes(nonce []byte) ([]byte, error) {
	none := make([]byte, NonceSize)
	switch {
	case nonce == nil:
		return none, nil
	case len(nonce) != NonceSize:
		return nil, fmt.Errorf("nonce: %d bytes instead of %d", len(nonce), NonceSize)
	case bytes.Equal(nonce, none):
		return nil, errors.New("nonce: all zero, which stands for no nonce; use 32 random bytes")
	}
	return nonce, nil
}
