package ehbp

import (
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"cloister.dev/guest/internal/foundation/atomicfile"
)

// Labels of the protocol, which bind keys to it.
const (
	requestInfo   = "ehbp request"
	responseLabel = "ehbp response"
)

const keySize = 32

// identity is the enclave's key pair for bodies.
type identity struct {
	private hpke.PrivateKey
}

func newIdentity() (identity, error) {
	private, err := hpke.DHKEM(ecdh.X25519()).GenerateKey()
	return identity{private}, err
}

// openIdentity returns the enclave's key pair, generated if there is none, and publishes its public key.
// It is read again when this part was restarted, so that it is the same for the life of the Pod.
func openIdentity(spec Spec) (identity, error) {
	file := filepath.Join(spec.KeyDirectory, privateKeyFile)
	content, err := os.ReadFile(file)
	var found identity
	switch {
	case errors.Is(err, os.ErrNotExist):
		found, err = makeIdentity(file)
	case err == nil:
		found.private, err = hpke.DHKEM(ecdh.X25519()).NewPrivateKey(content)
	}
	if err != nil {
		return identity{}, fmt.Errorf("the key for encrypted bodies cannot be obtained: %w", err)
	}
	public := hex.EncodeToString(found.public()) + "\n"
	return found, atomicfile.Write(filepath.Join(spec.Directory, publicKeyFile), []byte(public), 0o644)
}

func makeIdentity(file string) (identity, error) {
	made, err := newIdentity()
	if err != nil {
		return identity{}, err
	}
	content, err := made.private.Bytes()
	if err != nil {
		return identity{}, err
	}
	return made, atomicfile.Write(file, content, 0o600)
}

func (i identity) public() []byte { return i.private.PublicKey().Bytes() }

// configuration returns the key configuration of RFC 9458, section 3.1: key 0, the KEM, the public key,
// and one pair of KDF and AEAD. As the protocol's clients read it, no length precedes it.
func (i identity) configuration() []byte {
	text := []byte{0}
	text = binary.BigEndian.AppendUint16(text, hpke.DHKEM(ecdh.X25519()).ID())
	text = append(text, i.public()...)
	text = binary.BigEndian.AppendUint16(text, 4)
	text = binary.BigEndian.AppendUint16(text, hpke.HKDFSHA256().ID())
	return binary.BigEndian.AppendUint16(text, hpke.AES256GCM().ID())
}

// recipient returns the context of a request that names an encapsulated key.
func (i identity) recipient(encapsulated []byte) (*hpke.Recipient, error) {
	return hpke.NewRecipient(encapsulated, i.private, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte(requestInfo))
}
