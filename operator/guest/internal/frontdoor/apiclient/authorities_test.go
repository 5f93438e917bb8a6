package apiclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func TestWithoutACAFileThePublicAuthoritiesAreTrustedAndNoOther(t *testing.T) {
	pool, err := Address{URL: "https://192.0.2.1"}.pool()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for root := range bundle.Roots() {
		certificate, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		if root.Constraint == nil {
			count++
			options := x509.VerifyOptions{Roots: pool, CurrentTime: certificate.NotBefore, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
			if _, err := certificate.Verify(options); err != nil {
				t.Errorf("%s: %v", certificate.Subject, err)
			}
		}
	}
	if count < 100 {
		t.Errorf("there are only %d", count)
	}

	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	address := testAddress(t, server, "example.com")
	address.CAFile = ""
	client, err := NewClient(address)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Get(address.URL)
	if err == nil {
		response.Body.Close()
	}
	var refused *tls.CertificateVerificationError
	if !errors.As(err, &refused) {
		t.Errorf("a server of an unknown authority: %v", err)
	}
}
