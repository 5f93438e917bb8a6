package ehbp

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"runtime/debug"
	"time"

	"golang.org/x/sync/semaphore"

	"cloister.dev/guest/internal/frontdoor/shimsocket"
)

const (
	headerTimeout = 10 * time.Second
	// maxHeaders is above the shim's own limit for a request.
	maxHeaders  = 1 << 21
	dialTimeout = 3 * time.Second
	// maxExchanges is the number of requests at a time. Each takes some 100 KiB, with its frames of up to
	// smallFrame; larger ones share maxMemory.
	maxExchanges = 512
	// memoryLimit makes the collector of garbage work harder before the process grows beyond it.
	memoryLimit = 96 << 20
)

// silent is a log that discards its messages: messages of net/http may quote what a client sent.
var silent = log.New(io.Discard, "", 0)

// server serves the shim.
type server struct {
	identity identity
	required bool
	memory   *semaphore.Weighted
	slots    *semaphore.Weighted
	proxy    *httputil.ReverseProxy
	// grace is that of the frames of requests.
	grace time.Duration
}

func newServer(found identity, spec Spec) *server {
	made := &server{identity: found, required: spec.Required, memory: semaphore.NewWeighted(maxMemory), slots: semaphore.NewWeighted(maxExchanges), grace: frameGrace}
	made.proxy = made.newProxy(spec.Upstream.String())
	return made
}

// newTransport returns what connects to the container, each time newly: a request whose body is decrypted
// as it arrives cannot be repeated when a connection that was kept has just ended. The container is not
// told, since servers that know that a connection ends reset it while their response is still read.
func newTransport() *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConnsPerHost: -1, DisableCompression: true,
	}
}

// Run serves the shim until the context is done.
func Run(ctx context.Context, spec Spec) error {
	debug.SetMemoryLimit(memoryLimit)
	found, err := openIdentity(spec)
	if err != nil {
		return err
	}
	listener, err := shimsocket.Listen(spec.socket())
	if err != nil {
		return err
	}
	return serve(ctx, listener, newServer(found, spec))
}

func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: maxHeaders, ErrorLog: silent,
	}
	// A connection is for one request: what is left of a body that was not read to its end must never be
	// taken for the next request, which the shim has not judged.
	server.SetKeepAlivesEnabled(false)
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		_ = server.Shutdown(context.Background()) // the kubelet ends what takes too long
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return err
	}
	<-stopped
	return nil
}

// ServeHTTP serves the key configuration, and passes every other request on.
func (s *server) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	if request.URL.EscapedPath() == keysPath {
		s.serveKeys(writer, request)
		return
	}
	if !s.slots.TryAcquire(1) {
		refuse(writer, request, busy)
		return
	}
	defer s.slots.Release(1)
	if len(request.Header.Values(encapsulatedKeyHeader)) > 0 {
		s.serveEncrypted(writer, request)
		return
	}
	s.servePlain(writer, request)
}

func (s *server) serveKeys(writer http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		writer.Header().Set("Allow", "GET, HEAD")
		refuse(writer, request, onlyGet)
		return
	}
	writer.Header().Set("Content-Type", keysType)
	writer.Header().Set("Cache-Control", "no-store")
	_, _ = writer.Write(s.identity.configuration()) // the shim may be gone
}
