package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"time"

	"cloister.dev/guest/internal/certificate"
)

const (
	agentSocket  = runDirectory + "/agent/agent.sock"
	frontAddress = "0.0.0.0:8443"
	workload     = "127.0.0.1:8080"
	headersWait  = 10 * time.Second
)

// serve takes the place of `guest certificate` and of the shim: it generates the TLS key inside, writes
// its fingerprint, which the agent binds into evidence, and forwards requests.
func serve() error {
	identity, err := generate()
	if err != nil {
		return err
	}
	server := &http.Server{Handler: forwarding(), ReadHeaderTimeout: headersWait, Addr: frontAddress,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{identity}}}
	return fmt.Errorf("the TLS server ended: %w", server.ListenAndServeTLS("", ""))
}

// generate generates a key with a certificate that it signs itself. Clients take no name from it: the
// evidence binds the key.
func generate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 1, 0)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	parsed, err := x509.ParseCertificate(raw)
	if err != nil {
		return tls.Certificate{}, err
	}
	fingerprint := sha256.Sum256(parsed.RawSubjectPublicKeyInfo)
	if err := os.WriteFile(certificate.Fingerprint, []byte(hex.EncodeToString(fingerprint[:])+"\n"), 0o444); err != nil {
		return tls.Certificate{}, err
	}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	err = os.WriteFile(certificate.Directory+"/"+certificate.CertificateFile, chain, 0o444)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, err
}

// forwarding forwards the well-known paths to the agent and all others to the container.
func forwarding() http.Handler {
	agent := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "agent"})
	agent.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", agentSocket)
	}}
	container := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: workload})
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if strings.HasPrefix(request.URL.Path, "/.well-known/") {
			agent.ServeHTTP(writer, request)
			return
		}
		container.ServeHTTP(writer, request)
	})
}
