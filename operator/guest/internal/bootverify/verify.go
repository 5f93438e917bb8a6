// Package bootverify verifies evidence of a measured boot, offline, as a client does. The guest imports
// nothing of it, since what replays event logs would be memory of each enclave.
package bootverify

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"time"

	"github.com/google/go-tpm/tpm2"

	"cloister.dev/guest/internal/measuredboot"
)

// Authorities are those who may certify an attestation key.
type Authorities struct {
	roots, intermediates *x509.CertPool
}

// ReadAuthorities reads certificates in PEM: those that sign themselves are the roots.
func ReadAuthorities(text []byte) (Authorities, error) {
	made, roots := Authorities{x509.NewCertPool(), x509.NewCertPool()}, 0
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		text = rest
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return Authorities{}, err
		}
		if bytes.Equal(certificate.RawSubject, certificate.RawIssuer) && certificate.CheckSignatureFrom(certificate) == nil {
			made.roots.AddCert(certificate)
			roots++
		} else {
			made.intermediates.AddCert(certificate)
		}
	}
	if roots == 0 {
		return Authorities{}, errors.New("no certificate that signs itself; give the root of whoever certified the TPM, in PEM")
	}
	return made, nil
}

// Counters tell one boot of a machine from another.
type Counters struct {
	// Clock is the time in ms that the TPM was powered.
	Clock uint64 `json:"clock"`
	// Resets and Restarts count boots and resumptions.
	Resets   uint32 `json:"resets"`
	Restarts uint32 `json:"restarts"`
}

// Expectation is what a verifier knows before it reads evidence.
type Expectation struct {
	// ReportData is what the quote has to bind.
	ReportData []byte
	// Measurement is the SHA-256 of the measurement document.
	Measurement [sha256.Size]byte
	// Platform is the machine that it trusts.
	Platform Platform
	// Authorities certify the keys of TPMs. There are none by default.
	Authorities Authorities
	// Now is the time at which certificates must be valid.
	Now time.Time
	// Since are the counters of earlier evidence of the same boot; nil means that any boot will do.
	Since *Counters
}

// Verify returns the counters of evidence that proves what is expected; else the error is a *measuredboot.Refusal.
func Verify(evidence []byte, want Expectation) (Counters, error) {
	read, err := measuredboot.Parse(evidence)
	if err != nil {
		return Counters{}, measuredboot.Refuse(measuredboot.StepEvidence, "%v", err)
	}
	if err := checkSignature(read, want); err != nil {
		return Counters{}, err
	}
	quoted, err := read.Quoted()
	if err != nil {
		return Counters{}, err
	}
	if !bytes.Equal(quoted.ExtraData.Buffer, want.ReportData) {
		return Counters{}, measuredboot.Refuse(measuredboot.StepReportData, "the quote binds %x instead of %x", quoted.ExtraData.Buffer, want.ReportData)
	}
	if err := read.CheckRegisters(); err != nil {
		return Counters{}, err
	}
	if err := checkMachine(read, want); err != nil {
		return Counters{}, err
	}
	found := Counters{Clock: quoted.ClockInfo.Clock, Resets: quoted.ClockInfo.ResetCount, Restarts: quoted.ClockInfo.RestartCount}
	return found, found.follow(want.Since)
}

// checkSignature verifies the certificate and the signature.
func checkSignature(read measuredboot.Evidence, want Expectation) error {
	certificate, err := x509.ParseCertificate(read.Certificate)
	if err != nil {
		return measuredboot.Refuse(measuredboot.StepCertificate, "%v", err)
	}
	if want.Authorities.roots == nil {
		return measuredboot.Refuse(measuredboot.StepCertificate, "no root is trusted; name that of whoever certified the TPM")
	}
	if _, err := certificate.Verify(x509.VerifyOptions{
		Roots: want.Authorities.roots, Intermediates: want.Authorities.intermediates, CurrentTime: want.Now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}); err != nil {
		return measuredboot.Refuse(measuredboot.StepCertificate, "%v", err)
	}
	if !isForAttestation(certificate) {
		return measuredboot.Refuse(measuredboot.StepCertificate, "it is not for an attestation key: the extended key usage %s is missing", measuredboot.AttestationKeyUsage)
	}
	key, isECDSA := certificate.PublicKey.(*ecdsa.PublicKey)
	if !isECDSA || key.Curve != elliptic.P256() {
		return measuredboot.Refuse(measuredboot.StepCertificate, "its key is not one of the curve P-256")
	}
	signature, err := tpm2.Unmarshal[tpm2.TPMTSignature](read.Signature)
	if err != nil || !bytes.Equal(tpm2.Marshal(signature), read.Signature) {
		return measuredboot.Refuse(measuredboot.StepSignature, "it cannot be read: %v", err)
	}
	signed, err := signature.Signature.ECDSA()
	if err != nil || signed.Hash != tpm2.TPMAlgSHA256 {
		return measuredboot.Refuse(measuredboot.StepSignature, "it is not ECDSA with SHA-256")
	}
	digest := sha256.Sum256(read.Quote)
	if r, s := new(big.Int).SetBytes(signed.SignatureR.Buffer), new(big.Int).SetBytes(signed.SignatureS.Buffer); !ecdsa.Verify(key, digest[:], r, s) {
		return measuredboot.Refuse(measuredboot.StepSignature, "it is not that of the certified key")
	}
	return nil
}

func isForAttestation(certificate *x509.Certificate) bool {
	for _, usage := range certificate.UnknownExtKeyUsage {
		if usage.Equal(measuredboot.AttestationKeyUsage) {
			return true
		}
	}
	return false
}

// follow returns an error unless the counters are of the same boot as earlier ones, and not older.
func (c Counters) follow(since *Counters) error {
	switch {
	case since == nil:
		return nil
	case c.Resets != since.Resets || c.Restarts != since.Restarts:
		return measuredboot.Refuse(measuredboot.StepSameBoot, "the machine has booted or resumed since: resets %d, restarts %d, before %d and %d", c.Resets, c.Restarts, since.Resets, since.Restarts)
	case c.Clock < since.Clock:
		return measuredboot.Refuse(measuredboot.StepSameBoot, "the quote is older than the one before: clock %d, before %d", c.Clock, since.Clock)
	}
	return nil
}
