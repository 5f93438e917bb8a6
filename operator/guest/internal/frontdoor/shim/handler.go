package shim

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"cloister.dev/guest/internal/frontdoor/target"
)

const (
	headerKey   = "Ehbp-Encapsulated-Key"
	headerNonce = "Ehbp-Response-Nonce"
	keysPath    = "/.well-known/hpke-keys"
	methods     = "GET, PUT, POST, HEAD, DELETE, OPTIONS, PATCH"
	agentSocket = "agent.sock"
	bootedName  = "booted"

	invalidRequest = "invalid_request_error"
	serverError    = "server_error"
)

func init() { caddy.RegisterModule(&handler{}) }

// handler is all that the shim does with a request.
type handler struct {
	Config

	agent, bodies, upstream caddyhttp.MiddlewareHandler
	gate                    *gate
	listed                  target.Listed
	keyed                   target.Keyed
	wellKnown               map[string]bool
	hostKeyPath             string
	isBooted                atomic.Bool
}

// CaddyModule describes the handler to Caddy.
func (*handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers." + moduleName, New: func() caddy.Module { return new(handler) }}
}

// moduleName is the name of the handler in Caddy's configuration.
const moduleName = "cloister"

// Provision prepares the handler.
func (h *handler) Provision(ctx caddy.Context) error {
	h.listed = target.NewListed(h.Paths)
	h.wellKnown = map[string]bool{"/.well-known/metrics": true}
	for _, suffix := range []string{"attestation", "boot-stages", "certificate", "containers", "metrics"} {
		h.wellKnown["/.well-known/"+h.Service+"-"+suffix] = true
	}
	h.hostKeyPath = "/.well-known/" + h.Service + "-ssh-host-key"
	hidden := []string{"Access-Control-*"}
	if h.Bodies != nil {
		// A container cannot pass a response off as encrypted that is not.
		hidden = append(hidden, headerNonce)
	}
	var problems [3]error
	h.agent, problems[0] = proxy(ctx, "unix/"+filepath.Join(h.Agent, agentSocket), nil)
	h.upstream, problems[1] = proxy(ctx, h.Upstream.String(), hidden)
	if h.Bodies != nil {
		h.bodies, problems[2] = proxy(ctx, "unix/"+h.Bodies.Socket, hidden[:1])
	}
	if h.Gate != nil {
		h.gate = newGate(h.Gate.Socket)
		h.keyed = target.NewKeyed(h.Gate.Keyed)
	}
	return errors.Join(problems[:]...)
}

// proxy returns Caddy's handler that passes requests on, unbuffered both ways, and removes headers of
// responses.
func proxy(ctx caddy.Context, address string, hidden []string) (caddyhttp.MiddlewareHandler, error) {
	config, err := json.Marshal(object{
		"upstreams":      []object{{"dial": address}},
		"flush_interval": -1,
		"headers":        object{"response": object{"delete": hidden}},
	})
	if err != nil {
		return nil, err
	}
	loaded, err := ctx.LoadModuleByID("http.handlers.reverse_proxy", config)
	if err != nil {
		return nil, err
	}
	return loaded.(caddyhttp.MiddlewareHandler), nil
}

// nothing follows the handler.
var nothing = caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })

// ServeHTTP serves a request: origins, our own paths, the boot, the file's paths, keys and rates, then the
// container.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	if origins := r.Header["Origin"]; len(origins) > 0 && !h.allowOrigin(w, r, strings.Join(origins, ",")) {
		return nil
	}
	// The text that is forwarded, so that nothing stands between what is checked and what is passed on.
	asked := r.URL.RequestURI()
	path := target.WithoutQuery(asked)
	switch {
	case h.wellKnown[path]:
		h.pass(h.agent, w, r, problem{status: http.StatusServiceUnavailable, message: agentAway})
	case !h.hasBooted():
		h.pass(h.agent, w, r, problem{status: http.StatusServiceUnavailable, message: agentAway, booting: true})
	case h.Bodies != nil && path == keysPath:
		h.pass(h.bodies, w, r, bodiesLost)
	case h.HostKey != "" && path == h.hostKeyPath:
		h.serveHostKey(w)
	case !h.listed.Has(asked):
		refuse(w, http.StatusNotFound, "Not found.", invalidRequest)
	case h.gate == nil || h.ask(w, r, asked):
		h.forward(w, r)
	}
	return nil
}

// allowOrigin checks the origin of a request and writes what browsers need; it reports whether the request
// goes on.
func (h *handler) allowOrigin(w http.ResponseWriter, r *http.Request, origin string) bool {
	if !h.allows(origin) {
		refuse(w, http.StatusForbidden, "CORS origin not allowed.", invalidRequest)
		return false
	}
	header := w.Header()
	header.Add("Vary", "Origin")
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Access-Control-Allow-Credentials", "true")
	header.Set("Access-Control-Allow-Methods", methods)
	if h.Bodies != nil {
		// Scripts in browsers read no header of a response that is not exposed.
		header.Set("Access-Control-Expose-Headers", headerNonce)
	}
	if wanted := r.Header["Access-Control-Request-Headers"]; len(wanted) > 0 {
		header.Set("Access-Control-Allow-Headers", strings.Join(wanted, ","))
	}
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return false
	}
	return true
}

// hasBooted reports whether the boot is complete, which is never undone: the file is looked for until it is
// there, and not for each request.
func (h *handler) hasBooted() bool {
	if h.isBooted.Load() {
		return true
	}
	if _, err := os.Stat(filepath.Join(h.Agent, bootedName)); err != nil {
		return false
	}
	h.isBooted.Store(true)
	return true
}

// ask asks the gate about a request that needs a key or counts; it reports whether the request goes on.
func (h *handler) ask(w http.ResponseWriter, r *http.Request, asked string) bool {
	path := ""
	switch {
	case h.keyed.Has(asked):
		path = gateKey
	case h.Gate.Rate:
		path = gateRate
	default:
		return true
	}
	return h.gate.ask(w, r, path, asked)
}

// forward passes a request to the container, or to what decrypts its body.
func (h *handler) forward(w http.ResponseWriter, r *http.Request) {
	clean(r.Header) // Caddy sets X-Forwarded-For, -Host and -Proto
	r.Header.Set("Forwarded", `host="`+r.Host+`";proto=https`)
	if h.Bodies != nil && (h.Bodies.Required || len(r.Header[headerKey]) > 0) {
		h.pass(h.bodies, w, r, bodiesLost)
		return
	}
	h.pass(h.upstream, w, r, problem{})
}

// serveHostKey serves the public key of the SSH server.
func (h *handler) serveHostKey(w http.ResponseWriter) {
	key, err := os.ReadFile(h.HostKey)
	if err != nil {
		refuse(w, http.StatusNotFound, "There is no host key yet.", serverError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(key)
}

// problem is the response when a part cannot be asked; without a status, that of the container.
type problem struct {
	status  int
	message string
	booting bool
}

const agentAway = "The enclave's agent is starting; ask again in a moment."

var bodiesLost = problem{status: http.StatusBadGateway, message: "The encrypted request was not passed on as a whole."}

// pass passes a request on, and responds when that fails.
func (h *handler) pass(to caddyhttp.MiddlewareHandler, w http.ResponseWriter, r *http.Request, otherwise problem) {
	err := to.ServeHTTP(w, r, nothing)
	if err == nil {
		return
	}
	if otherwise.status == 0 {
		otherwise = ofContainer(err)
	}
	if otherwise.booting {
		write(w, otherwise.status, object{
			"error": object{"message": otherwise.message, "type": serverError, "status": "pending"},
			"boot":  object{"stages": []object{}},
		})
		return
	}
	refuse(w, otherwise.status, otherwise.message, serverError)
}

// ofContainer returns the response to an error of the way to the container.
func ofContainer(err error) problem {
	failed := caddyhttp.HandlerError{StatusCode: http.StatusInternalServerError}
	_ = errors.As(err, &failed)
	switch failed.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return problem{status: http.StatusBadGateway, message: "The container does not answer."}
	}
	return problem{status: failed.StatusCode, message: "The request could not be handled."}
}

type object map[string]any

// refuse writes an error of the API.
func refuse(w http.ResponseWriter, status int, message, kind string) {
	write(w, status, object{"error": object{"message": message, "type": kind}})
}

func write(w http.ResponseWriter, status int, body object) {
	text, err := json.Marshal(body)
	if err != nil {
		status, text = http.StatusInternalServerError, nil
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// clean removes headers that servers trust from a proxy and that a client must not set: the client's
// address, the host and the path. Some servers read an underscore as a hyphen.
func clean(header http.Header) {
	for name := range header {
		if isTrusted(name) {
			delete(header, name)
		}
	}
}

func isTrusted(name string) bool {
	for at := range len(name) {
		rest := name[at:]
		switch lower(name[at]) {
		case 'f':
			if beginsWith(rest, "forwarded") {
				return true
			}
		case 'r':
			if beginsWith(rest, "real-ip") {
				return true
			}
		case 'x':
			if at == 0 && (beginsWith(rest, "x-original-") || beginsWith(rest, "x-rewrite-")) {
				return true
			}
		}
	}
	return false
}

// beginsWith reports whether a name begins with lower-case text; an underscore is a hyphen.
func beginsWith(name, text string) bool {
	if len(name) < len(text) {
		return false
	}
	for at := range len(text) {
		found := lower(name[at])
		if found == '_' {
			found = '-'
		}
		if found != text[at] {
			return false
		}
	}
	return true
}

func lower(letter byte) byte {
	if letter >= 'A' && letter <= 'Z' {
		return letter + 'a' - 'A'
	}
	return letter
}
