package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// shim completes TLS handshakes at a port for the names in a file, as often as they change, and
// writes another name that it was asked for to a second file: PORT CERTIFIED REFUSED.
func shim(arguments []string) error {
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	choose := func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		names, err := os.ReadFile(arguments[1])
		if err != nil {
			return nil, err
		}
		if slices.Contains(strings.Split(string(names), "\n"), hello.ServerName) {
			return certificate, nil
		}
		return nil, errors.Join(errors.New("no certificate"), write([]string{arguments[2], hello.ServerName}))
	}
	listener, err := tls.Listen("tcp", ":"+arguments[0], &tls.Config{GetCertificate: choose})
	if err != nil {
		return err
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go answer(connection)
	}
}

// answer completes a handshake and waits for the client to close.
func answer(connection net.Conn) {
	defer connection.Close()
	_, _ = connection.Read(make([]byte, 1))
}

func selfSigned() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key}, nil
}
