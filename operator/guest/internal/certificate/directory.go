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
)

// Names of the files in the directory.
const (
	// KeyFile is the private key, PEM (PKCS #8).
	KeyFile = "tls.key"
	// CertificateFile is the chain, PEM. It is replaced as a whole.
	CertificateFile = "tls.crt"
	// FingerprintFile is the SHA-256 of the public key (SubjectPublicKeyInfo, DER) in hexadecimal, for attestation.
	FingerprintFile = "tls.spki"
	// RequestFile is the signing request that was sent and not answered yet.
	RequestFile = "request.pem"
	// StatusFile tells how it is.
	StatusFile = "status.json"
)

// Permissions: the group is the shim's, nobody else reads the key.
const (
	secret = 0o640
	public = 0o644
)

// Status is the content of StatusFile.
type Status struct {
	// Version is Version.
	Version int `json:"version"`
	// Message is what went wrong last; empty when all is well.
	Message string `json:"message"`
	// NotAfter is when the certificate ends; null when there is none.
	NotAfter *time.Time `json:"notAfter"`
	// NextAt is when the API is asked next.
	NextAt time.Time `json:"nextAt"`
	// Told is the reason with which the side-car ended last, so that it does not end again to tell the same.
	Reported string `json:"told"`
}

// directory is the place of key and certificate.
type directory string

func (d directory) path(name string) string { return filepath.Join(string(d), name) }

// write replaces a file as a whole.
func (d directory) write(name string, content []byte, mode os.FileMode) error {
	temporary := d.path("." + name + ".new")
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(content); err != nil {
		return err
	}
	// Not left to the umask of whoever started us.
	if err := file.Chmod(mode); err != nil {
		return err
	}
	return os.Rename(temporary, d.path(name))
}

// openKey answers the enclave's key, makes it when there is none, and publishes its fingerprint.
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
	data, err := os.ReadFile(d.path(KeyFile))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s holds no key", KeyFile)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, fits := parsed.(*ecdsa.PrivateKey)
	if err != nil || !fits {
		return nil, fmt.Errorf("%s holds no ECDSA key", KeyFile)
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
	if err := d.write(KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), secret); err != nil {
		return nil, fmt.Errorf("the key cannot be kept: %w", err)
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
	return d.write(FingerprintFile, []byte(hex.EncodeToString(digest[:])+"\n"), public)
}

// request answers the signing request that is under way, and makes one when there is none.
func (d directory) request(key *ecdsa.PrivateKey, hostnames []string) ([]byte, error) {
	if data, err := os.ReadFile(d.path(RequestFile)); err == nil && asksFor(data, key, hostnames) {
		return data, nil
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: hostnames}, key)
	if err != nil {
		return nil, err
	}
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return data, d.write(RequestFile, data, public)
}

func asksFor(data []byte, key *ecdsa.PrivateKey, hostnames []string) bool {
	block, _ := pem.Decode(data)
	if block == nil {
		return false
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	return err == nil && key.PublicKey.Equal(request.PublicKey) && slices.Equal(request.DNSNames, hostnames)
}

// discardRequest lets the next question be a new one.
func (d directory) discardRequest() error {
	if err := os.Remove(d.path(RequestFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// current answers the certificate that the shim can use now.
func (d directory) current(key *ecdsa.PrivateKey, hostnames []string, now time.Time) (*x509.Certificate, error) {
	data, err := os.ReadFile(d.path(CertificateFile))
	if err != nil {
		return nil, errors.New("there is no certificate yet")
	}
	return checkChain(data, key, hostnames, now)
}

// checkChain reads a chain and checks that it is one for this key and these
// names, and good now. Who signed it is the API's matter, which was reached by
// TLS of its own; clients judge the signature.
func checkChain(data []byte, key *ecdsa.PrivateKey, hostnames []string, now time.Time) (*x509.Certificate, error) {
	var leaf *x509.Certificate
	for rest := bytes.TrimSpace(data); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return nil, errors.New("the chain holds something that is no certificate")
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("the chain holds no valid certificate: %w", err)
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
		return nil, fmt.Errorf("the certificate ended at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return leaf, nil
}

// linkShimStore makes the places where the shim looks for the files of each name. They
// lead to the same two files, so that one rename changes the certificate of all.
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
		for ending, target := range map[string]string{".crt": CertificateFile, ".key": KeyFile} {
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
	return d.write(StatusFile, append(data, '\n'), public)
}
