package sshd

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/crypto/ssh"

	"cloister.dev/guest/internal/foundation/atomicfile"
)

// hostKey reads the host key, or generates it: it is generated in the enclave and never
// leaves it. The public key is written for the shim, which serves it under the enclave's
// certificate, so that a client can compare it before it connects.
func hostKey(spec Spec) (ssh.Signer, error) {
	data, err := os.ReadFile(spec.HostKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = makeKey(spec.HostKeyFile)
	}
	if err != nil {
		return nil, fmt.Errorf("the host key: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(data)
	if err != nil {
		return nil, fmt.Errorf("the host key %s cannot be read: %w", spec.HostKeyFile, err)
	}
	line := ssh.MarshalAuthorizedKey(signer.PublicKey())
	if err := atomicfile.Write(spec.PublicKeyFile, line, 0o644); err != nil {
		return nil, fmt.Errorf("the public host key: %w", err)
	}
	return signer, nil
}

func makeKey(path string) ([]byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, err
	}
	data := pem.EncodeToMemory(block)
	return data, atomicfile.Write(path, data, 0o600)
}

// rsaBits returns the length of an RSA key in bits; 0 for another type.
func rsaBits(key ssh.PublicKey) int {
	wrapped, isCrypto := key.(ssh.CryptoPublicKey)
	if !isCrypto {
		return 0
	}
	if public, isRSA := wrapped.CryptoPublicKey().(*rsa.PublicKey); isRSA {
		return public.N.BitLen()
	}
	return 0
}
