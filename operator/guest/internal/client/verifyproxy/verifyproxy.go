// Package verifyproxy is a local HTTP address in front of one enclave. Every connection to the enclave
// is verified before a byte of a request is sent over it, and all are cut when a verification fails or
// shows another measurement.
package verifyproxy

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"cloister.dev/guest/internal/client/enclaveconn"
	"cloister.dev/guest/internal/client/verify"
)

// Verify connects to the enclave and verifies it over that connection. It returns the digest of the
// measurement document; an error that is a *verify.Failure means that the enclave is refused.
type Verify func(context.Context) (*enclaveconn.Connection, [sha256.Size]byte, error)

// Proxy passes requests to one enclave.
type Proxy struct {
	verify  Verify
	names   Names
	forward *httputil.ReverseProxy
	upward  *http.Transport
	logger  *log.Logger

	mutex sync.Mutex
	open  map[*tracked]bool
	// pinned is the measurement of the first verification; refused is why the last one failed.
	pinned  *[sha256.Size]byte
	refused *verify.Failure
}

// New returns a proxy to the enclave with a host name. What it cuts is logged without any content.
func New(host string, names Names, check Verify, logger *log.Logger) *Proxy {
	proxy := &Proxy{verify: check, names: names, open: map[*tracked]bool{}, logger: logger}
	proxy.upward = &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return proxy.connect(ctx) },
		// What is not used is verified again, sooner or later.
		IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 32, DisableCompression: true,
	}
	target := &url.URL{Scheme: "https", Host: host}
	proxy.forward = &httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) {
			request.SetURL(target)
			request.Out.Host = host
		},
		Transport: proxy.upward, FlushInterval: -1, ErrorHandler: proxy.respond, ErrorLog: logger,
	}
	return proxy
}

// ServeHTTP passes a request on.
func (p *Proxy) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	if !p.names.have(request.Host) {
		respondUnknown(writer, request.Host)
		return
	}
	p.forward.ServeHTTP(writer, request)
}

// Recheck verifies the enclave over a connection of its own, which is kept for requests only if the
// first request comes soon.
func (p *Proxy) Recheck(ctx context.Context) error {
	connection, err := p.connect(ctx)
	if err != nil {
		return err
	}
	return connection.Close()
}

// Watch rechecks at each interval until the context ends: connections that stay open would otherwise
// outlive a change.
func (p *Proxy) Watch(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = p.Recheck(ctx) // what it finds is kept and logged
		}
	}
}

// connect returns a verified connection.
func (p *Proxy) connect(ctx context.Context) (net.Conn, error) {
	connection, measurement, err := p.verify(ctx)
	if err == nil && !connection.Reusable {
		_ = connection.Close()
		err = &verify.Failure{Class: verify.ClassUnreachable, Step: "connect", Problem: "the enclave ends each connection after one response", Remedy: "ask its operator which server is in front of it"}
	}
	if err == nil {
		made, failure := p.admit(connection, measurement)
		if failure == nil {
			return made, nil
		}
		_ = connection.Close()
		err = failure
	}
	var failure *verify.Failure
	if errors.As(err, &failure) && failure.Class != verify.ClassUnreachable {
		p.cut(failure)
	}
	return nil, err
}

// admit tracks a connection unless its measurement is another one than the first.
func (p *Proxy) admit(connection *enclaveconn.Connection, measurement [sha256.Size]byte) (net.Conn, *verify.Failure) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.pinned == nil {
		p.pinned = &measurement
	}
	if *p.pinned != measurement {
		return nil, &verify.Failure{
			Class: verify.ClassMeasurement, Step: "measurement",
			Problem: fmt.Sprintf("it changed from sha256:%x to sha256:%x", *p.pinned, measurement),
			Remedy:  "find out what changed, and start the proxy again if you trust the new one",
		}
	}
	p.refused = nil
	made := &tracked{Conn: connection.Conn, proxy: p}
	p.open[made] = true
	return made, nil
}

// cut closes all connections to the enclave, those with requests too.
func (p *Proxy) cut(failure *verify.Failure) {
	p.mutex.Lock()
	ended := make([]*tracked, 0, len(p.open))
	for each := range p.open {
		ended = append(ended, each)
	}
	p.open, p.refused = map[*tracked]bool{}, failure
	p.mutex.Unlock()
	p.logger.Printf("refused with code %d, %d connections cut: %s", failure.Class, len(ended), failure)
	for _, each := range ended {
		// Without TLS's farewell, to which the enclave could answer with an orderly end of a response.
		_ = each.Conn.NetConn().Close()
	}
}

// Refused returns why the last verification failed; nil if it did not.
func (p *Proxy) Refused() *verify.Failure {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.refused
}

// tracked is a connection that the proxy can cut.
type tracked struct {
	*tls.Conn
	proxy *Proxy
}

// Close closes the connection and forgets it.
func (t *tracked) Close() error {
	t.proxy.mutex.Lock()
	delete(t.proxy.open, t)
	t.proxy.mutex.Unlock()
	return t.Conn.Close()
}

// respond reports to a client why its request was not passed on.
func (p *Proxy) respond(writer http.ResponseWriter, request *http.Request, err error) {
	failure := p.Refused()
	if failure == nil && !errors.As(err, &failure) {
		failure = &verify.Failure{Class: verify.ClassUnreachable, Step: "connect", Problem: err.Error(), Remedy: "check that the enclave is ready, then try again"}
	}
	respondWith(writer, http.StatusBadGateway, "not-verified", "The enclave is not verified", failure)
}
