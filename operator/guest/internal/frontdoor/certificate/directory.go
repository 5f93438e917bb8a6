package certificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"cloister.dev/guest/internal/foundation/atomicfile"
)

// Names of the files in the directory.
const (
	// keyFile is the private key, PEM (PKCS #8).
	keyFile = "tls.key"
	// certificateFile is the chain, PEM. It is replaced as a whole.
	certificateFile = "tls.crt"
	// fingerprintFile is the SHA-256 of the public key (SubjectPublicKeyInfo, DER) in hexadecimal, for attestation.
	fingerprintFile = "tls.spki"
	// CollateralFile is what the vendors publish of the machine's processor, for attestation.
	CollateralFile = "collateral.json"
	// requestFile is the pending signing request.
	requestFile = "request.pem"
	// statusFile is the status.
	statusFile = "status.json"
)

// Permissions: the group is the shim's; only it can read the key.
const (
	secret = 0o640
	public = 0o644
)

// Status is the content of statusFile.
type Status struct {
	// Version is Version.
	Version int `json:"version"`
	// Message is the last error; empty if there is none.
	Message string `json:"message"`
	// NotAfter is when the last certificate expires or expired; nil if there was none.
	NotAfter *time.Time `json:"notAfter"`
	// NextAt is the time of the next request to the API.
	NextAt time.Time `json:"nextAt"`
	// Reported is the reason with which the sidecar last exited: it exits once for each reason.
	Reported string `json:"told"`
}

// directory is the path of the directory of key and certificate.
type directory string

func (d directory) path(name string) string { return filepath.Join(string(d), name) }

// write replaces a file atomically.
func (d directory) write(name string, content []byte, mode os.FileMode) error {
	return atomicfile.Write(d.path(name), content, mode)
}

// openKey returns the enclave's key, generated if there is none, and publishes its fingerprint.
func (d directory) openKey() (*ecdsa.PrivateKey, error) {
	key, err := d.key()
	if errors.Is(err, os.ErrNotExist) {
		key, err = d.newKey()
	}
	if err != nil {
		return nil, err
	}
	return key, d.publish(key)
}

// key reads the enclave's key.
func (d directory) key() (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(d.path(keyFile))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s does not contain a key", keyFile)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, fits := parsed.(*ecdsa.PrivateKey)
	if err != nil || !fits {
		return nil, fmt.Errorf("%s does not contain an ECDSA key", keyFile)
	}
	return key, nil
}

func (d directory) newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := d.write(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), secret); err != nil {
		return nil, fmt.Errorf("the key cannot be stored: %w", err)
	}
	return key, nil
}

// publish writes the fingerprint of the public key.
func (d directory) publish(key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	digest := sha256.Sum256(der)
	return d.write(fingerprintFile, []byte(hex.EncodeToString(digest[:])+"\n"), public)
}

// request returns the pending signing request, a new one if there is none.
func (d directory) request(key *ecdsa.PrivateKey, hostnames []string) ([]byte, error) {
	if data, err := os.ReadFile(d.path(requestFile)); err == nil && asksFor(data, key, hostnames) {
		return data, nil
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: hostnames}, key)
	if err != nil {
		return nil, err
	}
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return data, d.write(requestFile, data, public)
}

func asksFor(data []byte, key *ecdsa.PrivateKey, hostnames []string) bool {
	block, _ := pem.Decode(data)
	if block == nil {
		return false
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	return err == nil && key.PublicKey.Equal(request.PublicKey) && slices.Equal(request.DNSNames, hostnames)
}

// discardRequest removes the pending request, so that the next one is new.
func (d directory) discardRequest() error {
	if err := os.Remove(d.path(requestFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// current returns the certificate if the shim can use it now.
func (d directory) current(key *ecdsa.PrivateKey, hostnames []string, now time.Time) (*x509.Certificate, error) {
	data, err := os.ReadFile(d.path(certificateFile))
	if err != nil {
		return nil, errors.New("there is no certificate yet")
	}
	return checkChain(data, key, hostnames, now)
}

// checkChain parses a chain and checks that it is for this key and these names, and
// valid now. It does not verify the issuer: the API was reached over TLS, and clients
// verify the signature.
func checkChain(data []byte, key *ecdsa.PrivateKey, hostnames []string, now time.Time) (*x509.Certificate, error) {
	var leaf *x509.Certificate
	for rest := bytes.TrimSpace(data); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return nil, errors.New("the chain contains something that is not a certificate")
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("the chain contains no valid certificate: %w", err)
		}
		if leaf == nil {
			leaf = one
		}
	}
	if leaf == nil {
		return nil, errors.New("the chain is empty")
	}
	if !key.PublicKey.Equal(leaf.PublicKey) {
		return nil, errors.New("the certificate is for another key")
	}
	for _, name := range hostnames {
		if err := leaf.VerifyHostname(name); err != nil {
			return nil, fmt.Errorf("the certificate is not for %s", name)
		}
	}
	if !now.Before(leaf.NotAfter) {
		return nil, fmt.Errorf("the certificate expired at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return leaf, nil
}

// linkShimStore creates the links under which the shim finds the files of each name.
// They point to the same two files, so that one rename replaces the certificate of all.
func (d directory) linkShimStore(store string, hostnames []string) error {
	description, err := json.Marshal(map[string]any{"sans": hostnames, "issuer_data": nil})
	if err != nil {
		return err
	}
	for _, name := range hostnames {
		place := directory(filepath.Join(store, name))
		if err := os.MkdirAll(string(place), 0o755); err != nil {
			return err
		}
		if err := place.write(name+".json", description, public); err != nil {
			return err
		}
		for ending, target := range map[string]string{".crt": certificateFile, ".key": keyFile} {
			if err := os.Symlink(d.path(target), place.path(name+ending)); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
		}
	}
	return nil
}

func (d directory) writeStatus(status Status) error {
	data, err := json.Marshal(status)
	if err != nil {
		return err
	}
	return d.write(statusFile, append(data, '\n'), public)
}
