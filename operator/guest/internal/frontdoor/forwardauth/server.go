package forwardauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"cloister.dev/guest/internal/frontdoor/shimsocket"
)

// Paths of the shim's requests.
const (
	// pathKey checks the request's key and counts the request.
	pathKey = "/key"
	// pathRate counts a request that needs no key.
	pathRate = "/rate"
)

// Headers in which the shim describes a request; it replaces those of the client.
const (
	headerAddress = "X-Gate-Address"
	headerHost    = "X-Gate-Host"
	headerTarget  = "X-Gate-Target"
)

const (
	readTimeout = 10 * time.Second
	// answerTimeout is above two requests to the API, the most that one request waits for.
	answerTimeout = 2*askTimeout + 4*time.Second
	// idleTimeout is above the shim's, so that the shim closes idle connections.
	idleTimeout = 5 * time.Minute
	maxKey      = 512
	// maxHeaders is above the shim's own limit for a request.
	maxHeaders = 1 << 21
)

// server serves the shim's requests.
type server struct {
	keys *keyCache
	// rates counts requests: of an accepted key, else of an address.
	rates *limiter
	// guesses counts refused keys of an address, apart from its requests: who sends requests
	// without a key cannot keep the keys of others behind the same address from being checked.
	guesses *limiter
}

func newServer(keys *keyCache, limits *RateLimit, callers int) *server {
	return &server{keys: keys, rates: newLimiter(limits, callers), guesses: newLimiter(guessesOf(limits), callers)}
}

// Run serves the socket of the spec until the context is done.
func Run(ctx context.Context, spec Spec, logger *slog.Logger) error {
	var keys *keyCache
	if spec.Keys != nil {
		ask, err := newValidator(spec.Keys.API)
		if err != nil {
			return fmt.Errorf("keys.api.%w", err)
		}
		keys = newKeyCache(*spec.Keys, ask, logger)
	}
	listener, err := shimsocket.Listen(spec.Socket)
	if err != nil {
		return err
	}
	return serve(ctx, listener, newServer(keys, spec.Rate, maxCallers).handler())
}

func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadTimeout: readTimeout, WriteTimeout: answerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaders,
		ErrorLog:       log.New(io.Discard, "", 0), // net/http's messages may quote what a client sent
	}
	stop := context.AfterFunc(ctx, func() {
		bounded, cancel := context.WithTimeout(context.Background(), answerTimeout)
		defer cancel()
		_ = server.Shutdown(bounded) // later requests are cut off
	})
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathKey, s.checkKey)
	mux.HandleFunc("GET "+pathRate, s.countOnly)
	return mux
}

// countOnly counts a request against its address.
func (s *server) countOnly(writer http.ResponseWriter, request *http.Request) {
	s.allow(writer, callerOf(request.Header.Get(headerAddress)))
}

// checkKey validates the key and counts the request: an accepted one against the key, one
// without a key against the address, and a refused one against the guesses of the address.
func (s *server) checkKey(writer http.ResponseWriter, request *http.Request) {
	address := callerOf(request.Header.Get(headerAddress))
	key, sent := bearer(request.Header.Values("Authorization"))
	if key == "" || s.keys == nil {
		body := refusals[http.StatusUnauthorized]
		if !sent {
			body = noKey
		}
		reject(writer, s.rates, address, decision{status: http.StatusUnauthorized}, body)
		return
	}
	host := normalizeHost(request.Header.Get(headerHost))
	who := s.keys.hashKey(key, host)
	if wait := s.guesses.peek(address, time.Now()); wait > 0 && !s.keys.isAccepted(who) {
		refuse(writer, decision{status: http.StatusTooManyRequests, wait: wait})
		return
	}
	asked := keyRequest{Key: key, Domain: s.keys.domain, Host: host, Path: pathWithoutQuery(request.Header.Get(headerTarget))}
	switch response := s.keys.check(request.Context(), who, asked); response.status {
	case http.StatusOK:
		s.allow(writer, "key "+string(who[:]))
	case http.StatusServiceUnavailable:
		refuse(writer, response)
	default:
		reject(writer, s.guesses, address, response, refusals[response.status])
	}
}

// allow lets a request pass unless its caller exceeds the rate.
func (s *server) allow(writer http.ResponseWriter, caller string) {
	if wait := s.rates.take(caller, time.Now()); wait > 0 {
		refuse(writer, decision{status: http.StatusTooManyRequests, wait: wait})
		return
	}
	writer.WriteHeader(http.StatusOK)
}

// reject counts a request without a valid key against its address and refuses it.
func reject(writer http.ResponseWriter, counted *limiter, address string, response decision, body refusal) {
	if wait := counted.take(address, time.Now()); wait > 0 {
		refuse(writer, decision{status: http.StatusTooManyRequests, wait: wait})
		return
	}
	refuseAs(writer, response, body)
}

// bearer returns the key of a request, empty if there is none that could be valid; sent
// reports whether any credentials were sent.
func bearer(values []string) (key string, sent bool) {
	if len(values) == 0 || strings.TrimSpace(strings.Join(values, "")) == "" {
		return "", false
	}
	scheme, token, found := strings.Cut(strings.TrimSpace(values[0]), " ")
	token = strings.TrimLeft(token, " ")
	if len(values) > 1 || !found || !strings.EqualFold(scheme, "bearer") || token == "" || len(token) > maxKey {
		return "", true
	}
	for _, character := range []byte(token) {
		if character <= ' ' || character > '~' || character == ',' {
			return "", true
		}
	}
	return token, true
}
