// Package enrol certifies the attestation key of a machine's TPM, as the maker of the machine's platform
// does once. Nothing inside an enclave imports it.
package enrol

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/subtle"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"cloister.dev/guest/internal/measuredboot"
)

// endorsementIndex is where a TPM keeps the certificate of its RSA endorsement key (TCG EK Credential
// Profile).
const endorsementIndex tpm2.TPMHandle = 0x01c00002

const (
	secretSize = 32
	// backdated is how much earlier a certificate begins, for clocks that are behind.
	backdated = time.Hour
	// lifetime is how long a certificate holds: machines of tests and demos are made when they are needed.
	lifetime = 30 * 24 * time.Hour
)

// Authority issues certificates.
type Authority struct {
	certificate *x509.Certificate
	key         *rsa.PrivateKey
	roots       *x509.CertPool
}

// ReadAuthority reads the local authority of swtpm: its root, the certificate of its issuer, and the
// issuer's key, all in PEM.
func ReadAuthority(root, issuer, key []byte) (Authority, error) {
	made := Authority{roots: x509.NewCertPool()}
	if !made.roots.AppendCertsFromPEM(root) {
		return Authority{}, errors.New("the root is no certificate in PEM")
	}
	block, _ := pem.Decode(issuer)
	if block == nil {
		return Authority{}, errors.New("the issuer is no certificate in PEM")
	}
	var err error
	if made.certificate, err = x509.ParseCertificate(block.Bytes); err != nil {
		return Authority{}, fmt.Errorf("issuer: %w", err)
	}
	if block, _ = pem.Decode(key); block == nil {
		return Authority{}, errors.New("the issuer's key is no key in PEM")
	}
	if made.key, err = x509.ParsePKCS1PrivateKey(block.Bytes); err != nil {
		return Authority{}, errors.New("the issuer's key is no RSA key of PKCS #1")
	}
	return made, nil
}

// Enrol certifies the attestation key of a TPM and writes the certificate into the TPM. Before, the TPM
// shows by activating a credential that the key is its own and that it has the certified endorsement key.
func (a Authority) Enrol(machine transport.TPM, now time.Time) error {
	endorsement, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHEndorsement, InPublic: tpm2.New2B(tpm2.RSAEKTemplate)}.Execute(machine)
	if err != nil {
		return fmt.Errorf("the TPM does not create its endorsement key: %w", err)
	}
	defer measuredboot.Flush(machine, endorsement.ObjectHandle)
	public, err := endorsement.OutPublic.Contents()
	if err != nil {
		return err
	}
	if err := a.checkEndorsement(machine, public, now); err != nil {
		return err
	}
	key, err := measuredboot.CreateKey(machine)
	if err != nil {
		return err
	}
	defer measuredboot.Flush(machine, key.ObjectHandle)
	if err := activate(machine, endorsement, public, key); err != nil {
		return err
	}
	certificate, err := a.certify(key, now)
	if err != nil {
		return err
	}
	return measuredboot.WriteIndex(machine, measuredboot.CertificateIndex, certificate)
}

// checkEndorsement returns an error unless the authority has certified the endorsement key.
func (a Authority) checkEndorsement(machine transport.TPM, public *tpm2.TPMTPublic, now time.Time) error {
	raw, err := measuredboot.ReadIndex(machine, endorsementIndex)
	if err != nil {
		return fmt.Errorf("the endorsement key has no certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		return fmt.Errorf("certificate of the endorsement key: %w", err)
	}
	// The name of the TPM's maker in it (directory name in the subject alternative name) is critical and
	// not known to crypto/x509. It decides nothing here.
	certificate.UnhandledCriticalExtensions = nil
	intermediates := x509.NewCertPool()
	intermediates.AddCert(a.certificate)
	if _, err := certificate.Verify(x509.VerifyOptions{
		Roots: a.roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}); err != nil {
		return fmt.Errorf("certificate of the endorsement key: %w", err)
	}
	key, err := tpm2.Pub(*public)
	if err != nil {
		return err
	}
	if known, isRSA := certificate.PublicKey.(*rsa.PublicKey); !isRSA || !known.Equal(key) {
		return errors.New("the certificate is that of another endorsement key")
	}
	return nil
}

// activate returns an error unless both keys are in the same TPM: it alone can read a secret that is
// encrypted for the one and names the other.
func activate(machine transport.TPM, endorsement *tpm2.CreatePrimaryResponse, public *tpm2.TPMTPublic, key *tpm2.CreatePrimaryResponse) error {
	recipient, err := tpm2.ImportEncapsulationKey(public)
	if err != nil {
		return err
	}
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // never fails
	credential, encrypted, err := tpm2.CreateCredential(rand.Reader, recipient, key.Name.Buffer, secret)
	if err != nil {
		return err
	}
	activated, err := tpm2.ActivateCredential{
		ActivateHandle: tpm2.AuthHandle{Handle: key.ObjectHandle, Name: key.Name, Auth: tpm2.PasswordAuth(nil)},
		KeyHandle:      tpm2.AuthHandle{Handle: endorsement.ObjectHandle, Name: endorsement.Name, Auth: tpm2.Policy(tpm2.TPMAlgSHA256, 16, endorsementPolicy)},
		CredentialBlob: tpm2.TPM2BIDObject{Buffer: credential}, Secret: tpm2.TPM2BEncryptedSecret{Buffer: encrypted},
	}.Execute(machine)
	if err != nil {
		return fmt.Errorf("the TPM does not activate the credential: %w", err)
	}
	if subtle.ConstantTimeCompare(activated.CertInfo.Buffer, secret) != 1 {
		return errors.New("the TPM activated another credential")
	}
	return nil
}

// endorsementPolicy satisfies the policy of endorsement keys, for which the TPM's administrator needs no
// password here.
func endorsementPolicy(machine transport.TPM, session tpm2.TPMISHPolicy, nonce tpm2.TPM2BNonce) error {
	_, err := tpm2.PolicySecret{
		AuthHandle:    tpm2.AuthHandle{Handle: tpm2.TPMRHEndorsement, Auth: tpm2.PasswordAuth(nil)},
		PolicySession: session, NonceTPM: nonce,
	}.Execute(machine)
	return err
}

// certify issues the certificate of an attestation key.
func (a Authority) certify(key *tpm2.CreatePrimaryResponse, now time.Time) ([]byte, error) {
	public, err := key.OutPublic.Contents()
	if err != nil {
		return nil, err
	}
	subject, err := tpm2.Pub(*public)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "attestation key of a TPM"},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, UnknownExtKeyUsage: []asn1.ObjectIdentifier{measuredboot.AttestationKeyUsage},
	}, a.certificate, subject, a.key)
}
