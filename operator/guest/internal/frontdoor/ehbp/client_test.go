package ehbp

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"cloister.dev/guest/internal/frontdoor/shimsocket"
)

// client encrypts one request, and decrypts its response.
type client struct {
	t            testing.TB
	encapsulated []byte
	sender       *hpke.Sender
}

func newClient(t testing.TB, public []byte) *client {
	t.Helper()
	key, err := hpke.DHKEM(ecdh.X25519()).NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	encapsulated, sender, err := hpke.NewSender(key, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte(requestInfo))
	if err != nil {
		t.Fatal(err)
	}
	return &client{t, encapsulated, sender}
}

// frame encrypts the next frame.
func (c *client) frame(plain string) []byte {
	c.t.Helper()
	sealed, err := c.sender.Seal(nil, []byte(plain))
	if err != nil {
		c.t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(sealed))), sealed...)
}

// frames encrypts several frames, one after the other.
func (c *client) frames(plain ...string) []byte {
	return bytes.Join(c.each(plain...), nil)
}

func (c *client) each(plain ...string) [][]byte {
	var made [][]byte
	for _, one := range plain {
		made = append(made, c.frame(one))
	}
	return made
}

// opened returns a reader of the decrypted body of a response.
func (c *client) opened(response *http.Response) io.Reader {
	c.t.Helper()
	nonce, err := hex.DecodeString(response.Header.Get(responseNonceHeader))
	if err != nil || len(nonce) != nonceSize {
		c.t.Fatalf("%s %q: %v", response.Status, response.Header.Get(responseNonceHeader), err)
	}
	exported, err := c.sender.Export(responseLabel, keySize)
	if err != nil {
		c.t.Fatal(err)
	}
	keys, err := newSealer(exported, c.encapsulated, nonce)
	if err != nil {
		c.t.Fatal(err)
	}
	return &decrypted{source: response.Body, keys: keys}
}

// decrypted reads the body of a response as the protocol specifies.
type decrypted struct {
	source io.Reader
	keys   *sealer
	rest   []byte
}

func (d *decrypted) Read(into []byte) (int, error) {
	for len(d.rest) == 0 {
		var length [lengthSize]byte
		if _, err := io.ReadFull(d.source, length[:]); err != nil {
			return 0, err
		}
		frame := make([]byte, binary.BigEndian.Uint32(length[:]))
		if _, err := io.ReadFull(d.source, frame); err != nil {
			return 0, io.ErrUnexpectedEOF
		}
		nonce := bytes.Clone(d.keys.base)
		nonce[len(nonce)-1] ^= byte(d.keys.sequence) // the tests have fewer than 256 frames, or read raw ones
		nonce[len(nonce)-2] ^= byte(d.keys.sequence >> 8)
		d.keys.sequence++
		plain, err := d.keys.aead.Open(nil, nonce, frame, nil)
		if err != nil {
			return 0, err
		}
		d.rest = plain
	}
	count := copy(into, d.rest)
	d.rest = d.rest[count:]
	return count, nil
}

// running is the part with a container behind it.
type running struct {
	server *server
	http   *http.Client
	url    string
}

// run serves a Unix socket as in an enclave.
func run(t *testing.T, required bool, container http.HandlerFunc) *running {
	t.Helper()
	behind := httptest.NewServer(container)
	t.Cleanup(behind.Close)
	folder := t.TempDir()
	spec := Spec{
		Version: Version, Directory: folder, KeyDirectory: t.TempDir(), Required: required,
		Upstream: netip.MustParseAddrPort(strings.TrimPrefix(behind.URL, "http://")),
	}
	found, err := openIdentity(spec)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := shimsocket.Listen(spec.socket())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	made, ended := newServer(found, spec), make(chan error, 1)
	go func() { ended <- serve(ctx, listener, made) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(folder, socketFile))
	}
	transport := &http.Transport{DialContext: dial}
	t.Cleanup(transport.CloseIdleConnections)
	return &running{made, &http.Client{Transport: transport}, "http://web.example"}
}

// send sends a request with a body of frames.
func (r *running) send(t *testing.T, target string, from *client, body io.Reader) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+target, body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set(encapsulatedKeyHeader, hex.EncodeToString(from.encapsulated))
	return r.do(t, request)
}

func (r *running) do(t *testing.T, request *http.Request) *http.Response {
	t.Helper()
	response, err := r.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}
