package attestation

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"cloister.dev/guest/internal/evidence/attestdoc"
)

// handshakeTimeout bounds a handshake with the shim, which runs next to the agent.
const handshakeTimeout = 2 * time.Second

// keys returns the keys of the enclave: that of TLS, for a host name, and that of encrypted bodies,
// where there is one.
func (a *Attester) keys(ctx context.Context, host string) (attestdoc.CryptoMaterial, error) {
	tlsKey, err := a.tlsKey(ctx, host)
	if err != nil {
		return attestdoc.CryptoMaterial{}, err
	}
	hpke, err := readKey(a.settings.HPKE)
	if errors.Is(err, os.ErrNotExist) {
		return attestdoc.CryptoMaterial{}, ErrNoKey
	}
	return attestdoc.CryptoMaterial{TLSSPKI: tlsKey, HPKEX25519: hpke}, err
}

func (a *Attester) tlsKey(ctx context.Context, host string) (string, error) {
	if a.settings.Key == "" {
		return a.presentedKey(ctx, host)
	}
	key, err := readKey(a.settings.Key)
	if errors.Is(err, os.ErrNotExist) {
		return "", ErrNoKey
	}
	return key, err
}

// presentedKey returns the fingerprint of the key that the shim proves to have, in a handshake on the
// loopback: the shim made the key itself, for each of its host names another one, and renews it.
func (a *Attester) presentedKey(ctx context.Context, host string) (string, error) {
	certificate, err := Presented(ctx, a.settings.Shim, a.settings.Hostnames, host)
	if err != nil {
		return "", err
	}
	fingerprint := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(fingerprint[:]), nil
}

// Presented returns the certificate that the shim presents for a host name, of other names for its first one.
func Presented(ctx context.Context, shim netip.AddrPort, hostnames []string, host string) (*x509.Certificate, error) {
	if len(hostnames) == 0 {
		return nil, fmt.Errorf("%w: it has no host name", ErrNoKey)
	}
	if !slices.Contains(hostnames, host) {
		host = hostnames[0]
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	// The handshake proves possession of the key, which is what is bound; its name is not certified.
	dialer := tls.Dialer{Config: &tls.Config{ServerName: host, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", shim.String())
	if err != nil {
		return nil, fmt.Errorf("%w: the shim does not complete a handshake for %s: %w", ErrNoKey, host, withoutAddress(err))
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

func withoutAddress(err error) error {
	var about *net.OpError
	if errors.As(err, &about) {
		return about.Err
	}
	return err
}

// readKey reads a file with 32 bytes in hexadecimal digits; without a path there is no key.
func readKey(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	content, err := readBounded(path)
	if err != nil {
		return "", err
	}
	text := string(bytes.TrimSpace(content))
	if key, err := hex.DecodeString(text); err != nil || len(key) != sha256.Size || hex.EncodeToString(key) != text {
		return "", fmt.Errorf("%s does not contain %d bytes in lower-case hexadecimal digits", path, sha256.Size)
	}
	return text, nil
}
