package ehbp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net/http"
	"slices"
)

const (
	// nonceSize is that of the response's nonce: the larger of a key and a nonce of AES-256-GCM.
	nonceSize = 32
	// responseFrame is how much of a response is one frame at most. What the container flushes is a
	// frame by itself.
	responseFrame = 16 << 10
)

// sealer encrypts the frames of one response.
type sealer struct {
	aead     cipher.AEAD
	base     []byte
	sequence uint64
}

// newSealer derives the keys of a response, as Oblivious HTTP does (RFC 9458, section 4.4): from what the
// request's context exports, the encapsulated key and the response's nonce.
func newSealer(exported, encapsulated, nonce []byte) (*sealer, error) {
	pseudorandom, err := hkdf.Extract(sha256.New, exported, slices.Concat(encapsulated, nonce))
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Expand(sha256.New, pseudorandom, "key", keySize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	base, err := hkdf.Expand(sha256.New, pseudorandom, "nonce", aead.NonceSize())
	return &sealer{aead: aead, base: base}, err
}

// begin returns a sealer with a nonce of its own, which it writes into the response's headers, and removes
// those that describe another body.
func (e *exchange) begin(header http.Header) (*sealer, error) {
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // it ends the process if it fails
	header.Del("Content-Length")
	header.Set(responseNonceHeader, hex.EncodeToString(nonce))
	return newSealer(e.exported, e.encapsulated, nonce)
}

// append appends the next frame to a buffer.
func (s *sealer) append(buffer, plain []byte) []byte {
	nonce := slices.Clone(s.base)
	tail := nonce[len(nonce)-8:]
	binary.BigEndian.PutUint64(tail, binary.BigEndian.Uint64(tail)^s.sequence)
	s.sequence++
	buffer = binary.BigEndian.AppendUint32(buffer, uint32(len(plain)+s.aead.Overhead()))
	return s.aead.Seal(buffer, nonce, plain, nil)
}

// responseBody is the encrypted body of a response. Each read of the source is one frame.
type responseBody struct {
	source  io.ReadCloser
	sealer  *sealer
	plain   []byte
	frame   []byte
	pending []byte
	err     error
}

func newResponseBody(source io.ReadCloser, sealer *sealer) *responseBody {
	return &responseBody{source: source, sealer: sealer, plain: make([]byte, responseFrame), frame: make([]byte, 0, lengthSize+responseFrame+tagSize)}
}

// Read reads encrypted bytes. An error of the source, such as a body that ended early, comes after the
// frames before it.
func (b *responseBody) Read(into []byte) (int, error) {
	for len(b.pending) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		var count int
		if count, b.err = b.source.Read(b.plain); count > 0 {
			b.pending = b.sealer.append(b.frame, b.plain[:count])
		}
	}
	count := copy(into, b.pending)
	b.pending = b.pending[count:]
	return count, nil
}

// Close closes the source.
func (b *responseBody) Close() error { return b.source.Close() }
