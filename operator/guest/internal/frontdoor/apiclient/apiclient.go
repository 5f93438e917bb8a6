// Package apiclient is the HTTP client of Cloister's API inside an enclave.
//
// The network of an enclave lets a sidecar of ours connect to listed addresses only,
// and a sidecar queries no name server. So its spec contains the API's URL and the
// addresses to connect to; the host name is used for TLS only.
package apiclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"cloister.dev/guest/internal/foundation/measured"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	dialTimeout    = 3 * time.Second
	idleTimeout    = 60 * time.Second
	maxConnections = 64
)

// Address is the address of the API, a part of the specs of sidecars.
type Address struct {
	// URL is the API's base address, http or https, without a path.
	URL string `json:"url"`
	// CAFile contains the CA certificates of the API in PEM, a measured document; empty means the public
	// CAs.
	CAFile string `json:"caFile,omitempty"`

	// ConnectTo are the IPv4 addresses of the URL's host, which are not measured; empty means that the
	// host is itself an address.
	ConnectTo []netip.Addr `json:"-"`
	// Authorities is what CAFile contains.
	Authorities []byte `json:"-"`
}

// Complete returns the address with the addresses of its host and the content of CAFile, if that is
// the measured one.
func (a Address) Complete(addresses []netip.Addr) (Address, error) {
	a.ConnectTo = addresses
	if a.CAFile == "" {
		return a, nil
	}
	var err error
	a.Authorities, err = measured.ReadFile(a.CAFile)
	return a, err
}

// Validate returns an error that names every invalid field.
func (a Address) Validate() error {
	var problems []error
	add := func(condition bool, format string, values ...any) {
		if condition {
			problems = append(problems, fmt.Errorf(format, values...))
		}
	}
	base, err := url.Parse(a.URL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Hostname() == "" ||
		base.User != nil || base.RawQuery != "" || base.Fragment != "" || (base.Path != "" && base.Path != "/") {
		return fmt.Errorf("url: %q is not a URL such as https://api.example.com", a.URL)
	}
	add(a.CAFile != "" && base.Scheme != "https", "caFile: only with https")
	return errors.Join(problems...)
}

// At returns the full URL of a path of the API.
func (a Address) At(path string) string {
	base, err := url.Parse(a.URL)
	if err != nil {
		return path // refused by Validate
	}
	return base.JoinPath(path).String()
}

// NewClient returns a client that reaches only the API.
//
// It follows no redirect, which could send a key elsewhere, and uses no proxy.
// A request is bounded by its context.
func NewClient(address Address) (*http.Client, error) {
	if err := address.Validate(); err != nil {
		return nil, err
	}
	if err := address.validateHost(); err != nil {
		return nil, err
	}
	authorities, err := address.pool()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialContext:           dialer(address.ConnectTo),
		ForceAttemptHTTP2:     true,
		IdleConnTimeout:       idleTimeout,
		MaxConnsPerHost:       maxConnections,
		MaxIdleConnsPerHost:   maxConnections,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities},
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: 0, // the request's context bounds it
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// dialer returns a dial function that tries the addresses in order.
func dialer(addresses []netip.Addr) func(context.Context, string, string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: dialTimeout}
	if len(addresses) == 0 {
		return plain.DialContext
	}
	return func(ctx context.Context, network, target string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(target)
		if err != nil {
			return nil, err
		}
		var problems []error
		for _, address := range addresses {
			connection, err := plain.DialContext(ctx, network, net.JoinHostPort(address.String(), port))
			if err == nil {
				return connection, nil
			}
			problems = append(problems, err)
		}
		return nil, errors.Join(problems...)
	}
}

// validateHost returns an error if it is not known where the host is.
func (a Address) validateHost() error {
	base, err := url.Parse(a.URL)
	if err != nil {
		return err
	}
	if _, err := netip.ParseAddr(base.Hostname()); err != nil && len(a.ConnectTo) == 0 {
		return fmt.Errorf("no address of %s is known, and sidecars do not query a name server", base.Hostname())
	}
	return nil
}

// publicAuthorities returns the CA certificates of browsers, for the guest's image has none. They are
// parsed when the first client needs them: most parts of an enclave never connect.
var publicAuthorities = sync.OnceValues(func() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	for root := range bundle.Roots() {
		certificate, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			return nil, fmt.Errorf("a public CA certificate: %w", err)
		}
		if root.Constraint == nil {
			pool.AddCert(certificate)
		} else {
			pool.AddCertWithConstraint(certificate, root.Constraint)
		}
	}
	return pool, nil
})

// pool returns the CA certificates of CAFile, or the public ones without it.
func (a Address) pool() (*x509.CertPool, error) {
	if a.CAFile == "" {
		return publicAuthorities()
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(a.Authorities) {
		return nil, fmt.Errorf("caFile: %s contains no certificate in PEM", a.CAFile)
	}
	return pool, nil
}
