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
	"os"
	"time"

	_ "golang.org/x/crypto/x509roots/fallback" // the guest's image has no CA certificates
)

const (
	dialTimeout    = 3 * time.Second
	idleTimeout    = 60 * time.Second
	maxConnections = 64
	maxAddresses   = 16
	maxAuthorities = 1 << 20
)

// Address is the address of the API, a part of the specs of sidecars.
type Address struct {
	// URL is the API's base address, http or https, without a path.
	URL string `json:"url"`
	// ConnectTo are the IPv4 addresses of the URL's host; empty means that the host is itself an address.
	ConnectTo []netip.Addr `json:"connectTo,omitempty"`
	// CAFile contains the CA certificates of the API in PEM; empty means the public CAs.
	CAFile string `json:"caFile,omitempty"`
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
	_, notAnAddress := netip.ParseAddr(base.Hostname())
	add(len(a.ConnectTo) == 0 && notAnAddress != nil, "connectTo: needed, since %s is a name and sidecars query no name server", base.Hostname())
	add(len(a.ConnectTo) > maxAddresses, "connectTo: %d addresses, at most %d", len(a.ConnectTo), maxAddresses)
	for index, address := range a.ConnectTo {
		add(!address.Is4(), "connectTo[%d]: needs an IPv4 address", index)
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
	authorities, err := readAuthorities(address.CAFile)
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

// readAuthorities reads CA certificates; without a path it returns nil, the public CAs.
func readAuthorities(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("caFile: %w", err)
	}
	pool := x509.NewCertPool()
	if len(data) > maxAuthorities || !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("caFile: %s contains no certificate in PEM, or more than %d bytes", path, maxAuthorities)
	}
	return pool, nil
}
