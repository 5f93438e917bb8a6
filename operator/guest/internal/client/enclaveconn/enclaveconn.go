// Package enclaveconn opens TLS connections to enclaves and requests the attestation document over
// them, so that what is verified and what is used afterwards is the same connection.
package enclaveconn

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"cloister.dev/guest/internal/evidence/attestdoc"
)

// timeout is the longest time from the first packet to the last byte of the document.
const timeout = 30 * time.Second

// Target is the enclave to connect to.
type Target struct {
	// Host is its host name, with or without a port.
	Host string
	// Connect is the address to connect to instead, with a port; empty means that of Host.
	Connect string
	// Service is the service name of the installation.
	Service string
	// Nonce is the nonce to send; empty means a new one.
	Nonce []byte
}

// Connection is a connection whose document has been fetched.
type Connection struct {
	*tls.Conn
	// Certificate is the one that the enclave presented, DER.
	Certificate []byte
	// Key is the SHA-256 of its SubjectPublicKeyInfo.
	Key [sha256.Size]byte
	// Nonce is the nonce that was sent.
	Nonce []byte
	// Document is the document as it came.
	Document []byte
	// Reusable reports whether the connection can be used for further requests.
	Reusable bool
}

// Open connects and requests the document with a fresh nonce. Names of certificates prove nothing
// here: the evidence binds the key itself.
func Open(ctx context.Context, target Target) (*Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	name, address, err := target.addresses()
	if err != nil {
		return nil, err
	}
	dialer := &tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, ServerName: name, NextProtos: []string{"http/1.1"},
	}}
	dialed, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	made := &Connection{Conn: dialed.(*tls.Conn), Nonce: target.Nonce}
	if len(made.Nonce) == 0 {
		made.Nonce = make([]byte, attestdoc.NonceSize)
		_, _ = rand.Read(made.Nonce) // never fails
	}
	leaf := made.ConnectionState().PeerCertificates[0]
	made.Certificate, made.Key = leaf.Raw, sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	stop := context.AfterFunc(ctx, func() { _ = made.SetDeadline(time.Unix(1, 0)) })
	err = made.request(target)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = made.Close()
		return nil, err
	}
	return made, nil
}

// addresses returns the name for TLS and the address for TCP.
func (t Target) addresses() (name, address string, err error) {
	parsed, err := url.Parse("https://" + t.Host + "/")
	if err != nil || parsed.Host != t.Host || parsed.Hostname() == "" {
		return "", "", fmt.Errorf("%.200q is not HOST or HOST:PORT", t.Host)
	}
	port := parsed.Port()
	if port == "" {
		port = "443"
	}
	if t.Connect == "" {
		return parsed.Hostname(), net.JoinHostPort(parsed.Hostname(), port), nil
	}
	if _, _, err := net.SplitHostPort(t.Connect); err != nil {
		return "", "", fmt.Errorf("%.200q is not ADDRESS:PORT", t.Connect)
	}
	return parsed.Hostname(), t.Connect, nil
}

// request requests the document over the connection.
func (c *Connection) request(target Target) error {
	address := "https://" + target.Host + "/.well-known/" + target.Service + "-attestation?nonce=" + hex.EncodeToString(c.Nonce)
	request, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "cloister-verify")
	if err := request.Write(c.Conn); err != nil {
		return err
	}
	reader := bufio.NewReader(c.Conn)
	response, err := http.ReadResponse(reader, request)
	if err != nil {
		return err
	}
	// Its body is not closed: that would read it to its end, and an error closes the connection.
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the enclave responds with %s", response.Status)
	}
	if c.Document, err = io.ReadAll(io.LimitReader(response.Body, attestdoc.MaxDocument+1)); err != nil {
		return err
	}
	if len(c.Document) > attestdoc.MaxDocument {
		return fmt.Errorf("the enclave sends more than %d bytes", attestdoc.MaxDocument)
	}
	if reader.Buffered() > 0 {
		return errors.New("the enclave sends more than the document")
	}
	c.Reusable = !response.Close
	return nil
}
