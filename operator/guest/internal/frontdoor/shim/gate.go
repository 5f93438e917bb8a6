package shim

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Paths of the gate's, and headers that describe a request to it.
const (
	gateKey       = "/key"
	gateRate      = "/rate"
	headerAddress = "X-Gate-Address"
	headerHost    = "X-Gate-Host"
	headerTarget  = "X-Gate-Target"
)

const (
	dialTimeout = 2 * time.Second
	// responseTimeout is longer than the gate ever takes to respond.
	responseTimeout = 15 * time.Second
	// keptConnections is the most that the gate responds to at a time, and idleTimeout is below the gate's.
	keptConnections = 256
	idleTimeout     = 2 * time.Minute
)

// gate asks `guest gate`, over connections that are kept.
type gate struct{ transport *http.Transport }

func newGate(socket string) *gate {
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &gate{&http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		ResponseHeaderTimeout: responseTimeout,
		MaxIdleConnsPerHost:   keptConnections,
		IdleConnTimeout:       idleTimeout,
		DisableCompression:    true,
	}}
}

// ask reports whether the gate lets a request pass; any response but 200 goes to the client unchanged. The
// query has no body and none of the client's headers but the key, so that bodies, streams and WebSockets
// stay between the client and the container.
func (g *gate) ask(w http.ResponseWriter, r *http.Request, path, target string) bool {
	response, err := g.transport.RoundTrip(query(r, path, target))
	if err != nil {
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "The request cannot be checked at the moment: try again.", serverError)
		return false
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return true
	}
	header := w.Header()
	for name, values := range response.Header {
		if name != "Connection" && name != "Date" {
			header[name] = values
		}
	}
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, response.Body)
	return false
}

func query(r *http.Request, path, target string) *http.Request {
	header := http.Header{
		headerAddress: {withoutPort(r.RemoteAddr)},
		headerHost:    {withoutPort(r.Host)},
		headerTarget:  {target},
	}
	if keys := r.Header["Authorization"]; len(keys) > 0 {
		header["Authorization"] = []string{strings.Join(keys, ",")}
	}
	asked := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: "gate", Path: path}, Header: header}
	return asked.WithContext(r.Context())
}

// withoutPort returns the host of an address that may have a port.
func withoutPort(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
