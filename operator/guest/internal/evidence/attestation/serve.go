package attestation

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"

	"cloister.dev/guest/internal/foundation/atomicfile"
	"cloister.dev/guest/internal/foundation/pattern"
)

// FileName is the name of the attestation document in the service directory.
const FileName = "attestation.json"

var noncePattern = pattern.Lazy(`^[0-9a-fA-F]{64}$`)

// ServeHTTP serves `GET /.well-known/<service>-attestation`, with `?nonce=` and 64
// hexadecimal digits to bind the response to a request.
func (a *Attester) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		writer.Header().Set("Allow", "GET, HEAD")
		writeError(writer, http.StatusMethodNotAllowed, "use GET")
		return
	}
	nonce, err := readNonce(request.URL.RawQuery)
	if err != nil {
		writeError(writer, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(request.Context(), askTimeout)
	defer cancel()
	document, err := a.served(ctx, nonce, HostOf(request))
	if err != nil {
		writer.Header().Set("Retry-After", "5")
		writeError(writer, http.StatusServiceUnavailable, err.Error())
		return
	}
	writeJSON(writer, http.StatusOK, document)
}

// served returns the document for a request.
func (a *Attester) served(ctx context.Context, nonce []byte, host string) (any, error) {
	if nonce != nil {
		return a.Document(ctx, nonce, host)
	}
	keys, err := a.keys(ctx, host)
	if err != nil {
		return nil, err
	}
	return a.plain(ctx, keys)
}

// readNonce reads the nonce of a query; nil if it has none.
func readNonce(query string) ([]byte, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("the query cannot be read")
	}
	given, found := values["nonce"]
	if !found {
		return nil, nil
	}
	if len(given) != 1 || !noncePattern().MatchString(given[0]) {
		return nil, errors.New("nonce must be given once, as 64 hexadecimal digits")
	}
	nonce, err := hex.DecodeString(given[0])
	if err == nil && !slices.ContainsFunc(nonce, func(each byte) bool { return each != 0 }) {
		return nil, errors.New("nonce must not be zero, which stands for none; use 32 random bytes")
	}
	return nonce, err
}

// HostOf returns the host name of a request, without its port.
func HostOf(request *http.Request) string {
	if host, _, err := net.SplitHostPort(request.Host); err == nil {
		return host
	}
	return request.Host
}

func writeError(writer http.ResponseWriter, status int, message string) {
	kind := "invalid_request_error"
	if status >= http.StatusInternalServerError {
		kind = "server_error"
	}
	writeJSON(writer, status, map[string]any{"error": map[string]string{"message": message, "type": kind}})
}

func writeJSON(writer http.ResponseWriter, status int, document any) {
	body, err := json.Marshal(document)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusInternalServerError)
		return
	}
	writer.Header().Set("Content-Type", "application/json")
	writer.Header().Set("Cache-Control", "no-store")
	writer.WriteHeader(status)
	_, _ = writer.Write(body)
}

// Write updates attestation.json in a directory: it binds the current keys and no nonce.
// It is called whenever the keys may have changed, and does nothing if the file already
// binds them.
func (a *Attester) Write(ctx context.Context, directory string) error {
	host := ""
	if len(a.settings.Hostnames) > 0 {
		host = a.settings.Hostnames[0]
	}
	keys, err := a.keys(ctx, host)
	if err != nil {
		return err
	}
	if a.written.Load() != nil && *a.written.Load() == keys {
		return nil
	}
	document, err := a.plain(ctx, keys)
	if err != nil {
		return err
	}
	content, err := json.Marshal(document)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(directory, FileName), content, 0o644); err != nil {
		return err
	}
	a.written.Store(&keys)
	return nil
}
