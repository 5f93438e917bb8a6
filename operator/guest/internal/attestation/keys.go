package attestation

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"cloister.dev/guest/internal/attestdoc"
)

// handshakeTimeout bounds a handshake with the shim, which runs beside the agent.
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
	if len(a.settings.Hostnames) == 0 {
		return "", fmt.Errorf("%w: it has no host name", ErrNoKey)
	}
	if !slices.Contains(a.settings.Hostnames, host) {
		host = a.settings.Hostnames[0]
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	// The handshake proves possession of the key, which is what is bound; nobody vouches for its name.
	dialer := tls.Dialer{Config: &tls.Config{ServerName: host, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", a.settings.Shim.String())
	if err != nil {
		return "", fmt.Errorf("%w: the shim completes no handshake for %s: %w", ErrNoKey, host, withoutAddress(err))
	}
	defer conn.Close()
	certificates := conn.(*tls.Conn).ConnectionState().PeerCertificates
	fingerprint := sha256.Sum256(certificates[0].RawSubjectPublicKeyInfo)
	return hex.EncodeToString(fingerprint[:]), nil
}

func withoutAddress(err error) error {
	var about *net.OpError
	if errors.As(err, &about) {
		return about.Err
	}
	return err
}

// readKey reads a file with 32 bytes in hexadecimal digits; no path is no key.
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
