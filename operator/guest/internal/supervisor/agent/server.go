package agent

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	wellKnown    = "/.well-known/"
	headersEvery = 10 * time.Second
)

// routes returns the handlers of the well-known paths by path suffix.
func (a *agent) routes() map[string]http.HandlerFunc {
	service := wellKnown + a.spec.Measurement.Service + "-"
	return map[string]http.HandlerFunc{
		service + "attestation": a.serveAttestation,
		service + "certificate": a.serveCertificate,
		service + "containers":  a.serveContainers,
		service + "boot-stages": a.serveStages,
		service + "metrics":     a.serveMetrics,
		wellKnown + "metrics":   a.serveGauges,
	}
}

// serveHTTP serves the shim's socket and the port of the kubelet's probes, which no request from
// outside of the node reaches.
func (a *agent) serveHTTP(ctx context.Context, failed chan<- error) error {
	public, err := listenAt(filepath.Join(a.spec.Directory, httpName), "unix", 0o111)
	if err != nil {
		return err
	}
	probes, err := net.Listen("tcp4", a.spec.Probes.String())
	if err != nil {
		return errors.Join(fmt.Errorf("probes: %w", err), public.Close())
	}
	prober := &prober{predicate: a.predicate, changed: a.passes, presumed: a.state.Boot.CompletedAt != nil, reported: map[string]bool{}}
	for listener, handler := range map[net.Listener]http.Handler{public: http.HandlerFunc(a.servePublic), probes: prober} {
		server := &http.Server{Handler: handler, ReadHeaderTimeout: headersEvery, BaseContext: func(net.Listener) context.Context { return ctx }}
		context.AfterFunc(ctx, func() { server.Close() })
		go func() {
			err := server.Serve(listener)
			if ctx.Err() == nil {
				failed <- fmt.Errorf("the agent's socket: %w", err)
			}
		}()
	}
	return nil
}

// servePublic serves the well-known paths, and all other paths until the boot is complete.
func (a *agent) servePublic(response http.ResponseWriter, request *http.Request) {
	handler, found := a.routes()[request.URL.Path]
	switch {
	case !found:
		a.serveBooting(response)
	case request.Method != http.MethodGet && request.Method != http.MethodHead:
		response.Header().Set("Allow", "GET, HEAD")
		writeError(response, http.StatusMethodNotAllowed, "Only GET and HEAD are allowed here.", "invalid_request_error")
	default:
		handler(response, request)
	}
}

// bootError is the response to all other requests before the boot is complete.
type bootError struct {
	Error struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Status  string `json:"status"`
	} `json:"error"`
	Boot Stages `json:"boot"`
}

func (a *agent) serveBooting(response http.ResponseWriter) {
	a.mutex.Lock()
	body := bootError{Boot: a.state.Boot.stages(a.spec.Containers, a.state.Containers, time.Now().UTC())}
	failed := a.state.Boot.Failure
	a.mutex.Unlock()
	body.Error.Type, body.Error.Status = "server_error", statusPending
	body.Error.Message = "The enclave is booting; try again in a moment."
	if failed != nil {
		body.Error.Status = statusFailed
		body.Error.Message = "The enclave could not boot; see the boot stages for the reason."
	}
	response.Header().Set("Retry-After", "1")
	write(response, http.StatusServiceUnavailable, body)
}

func (a *agent) serveStages(response http.ResponseWriter, _ *http.Request) {
	a.mutex.Lock()
	spec := a.state.Boot.stages(a.spec.Containers, a.state.Containers, time.Now().UTC())
	a.mutex.Unlock()
	write(response, http.StatusOK, spec)
}

func (a *agent) serveContainers(response http.ResponseWriter, _ *http.Request) {
	data, err := os.ReadFile(filepath.Join(a.spec.ServiceDirectory, statusName))
	if err != nil {
		writeError(response, http.StatusServiceUnavailable, "The status of the containers is not written yet; try again in a moment.", "server_error")
		return
	}
	send(response, http.StatusOK, "application/json", data)
}

func (a *agent) serveMetrics(response http.ResponseWriter, request *http.Request) {
	if a.authorized(response, request) {
		write(response, http.StatusOK, a.metrics())
	}
}

func (a *agent) serveGauges(response http.ResponseWriter, request *http.Request) {
	if a.authorized(response, request) {
		send(response, http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", []byte(a.metrics().gauges(a.spec.Measurement.Service)))
	}
}

func (a *agent) metrics() MetricsDocument {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.meter.document(a.spec.Metrics, a.spec.Unmeasured)
}

// authorized checks the bearer token of the metrics, if one is configured, and responds
// with an error if it does not match.
func (a *agent) authorized(response http.ResponseWriter, request *http.Request) bool {
	if a.spec.Metrics.TokenFile == "" {
		return true
	}
	token, err := os.ReadFile(a.spec.Metrics.TokenFile)
	expected := strings.TrimSpace(string(token))
	if err != nil || expected == "" {
		writeError(response, http.StatusServiceUnavailable, "The token of the metrics cannot be read; start the container again.", "server_error")
		return false
	}
	scheme, given, _ := strings.Cut(request.Header.Get("Authorization"), " ")
	sums := [2][32]byte{sha256.Sum256([]byte(given)), sha256.Sum256([]byte(expected))}
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(sums[0][:], sums[1][:]) != 1 {
		response.Header().Set("WWW-Authenticate", "Bearer")
		writeError(response, http.StatusUnauthorized, "The metrics of this enclave need their bearer token.", "invalid_request_error")
		return false
	}
	return true
}

func writeError(response http.ResponseWriter, status int, message, kind string) {
	write(response, status, map[string]any{"error": map[string]string{"message": message, "type": kind}})
}

func write(response http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{}`)
	}
	send(response, status, "application/json", append(data, '\n'))
}

func send(response http.ResponseWriter, status int, kind string, data []byte) {
	response.Header().Set("Content-Type", kind)
	response.Header().Set("Cache-Control", "no-store")
	response.WriteHeader(status)
	_, _ = response.Write(data)
}
