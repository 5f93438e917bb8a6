package forwardauth

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"cloister.dev/guest/internal/frontdoor/apiclient"
)

const (
	validatePath = "/api/shim/validate-key"
	// askTimeout bounds one request to the API.
	askTimeout = 3 * time.Second
	// maxAnswer is the size in bytes up to which a response's body is read, so that its connection can be reused.
	maxAnswer = 1 << 16
	// maxPath and maxHost bound the path and host of a request that are sent to the API.
	maxPath = 2048
	maxHost = 253
)

// keyRequest is the body of a request to validate a key.
type keyRequest struct {
	Key    string `json:"api_key"`
	Domain string `json:"domain"`
	Host   string `json:"requested_host,omitempty"`
	Path   string `json:"path,omitempty"`
}

// decision is whether a request may pass: 200, or the status of the refusal.
type decision struct {
	status int
	wait   time.Duration
}

// validator validates a key at the API; an error means that the API cannot be reached.
type validator func(context.Context, keyRequest) (decision, error)

// newValidator returns the validator for an address.
func newValidator(address apiclient.Address) (validator, error) {
	client, err := apiclient.NewClient(address)
	if err != nil {
		return nil, err
	}
	target := address.At(validatePath)
	return func(ctx context.Context, asked keyRequest) (decision, error) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		body, err := json.Marshal(asked)
		if err != nil {
			return decision{}, err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
		if err != nil {
			return decision{}, err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("User-Agent", "cloister-gate")
		// The request is idempotent: net/http may resend it if the API closed an idle connection.
		request.Header["X-Idempotency-Key"] = nil
		response, err := client.Do(request)
		if err != nil {
			return decision{}, err
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer)); err != nil && ctx.Err() != nil {
			return decision{}, fmt.Errorf("the response body is incomplete: %w", err)
		}
		return decisionOf(response)
	}, nil
}

// decisionOf returns the decision of a response: only its status counts. A status that
// is not in the contract comes from something that is not the API, or from a failing API.
func decisionOf(response *http.Response) (decision, error) {
	switch response.StatusCode {
	case http.StatusOK, http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		return decision{status: response.StatusCode}, nil
	case http.StatusTooManyRequests:
		return decision{status: response.StatusCode, wait: retryAfter(response.Header.Get("Retry-After"))}, nil
	}
	return decision{}, fmt.Errorf("it returned %d, which is not a decision about a key", response.StatusCode)
}

// retryAfter parses a Retry-After in seconds; anything else means one second.
func retryAfter(text string) time.Duration {
	if value, err := strconv.Atoi(text); err == nil && value > 0 && value <= 24*3600 {
		return time.Duration(value) * time.Second
	}
	return time.Second
}

// normalizeHost returns a host name in lower case, without the trailing dot.
func normalizeHost(request string) string {
	return strings.ToLower(strings.TrimSuffix(request[:min(len(request), maxHost)], "."))
}

// pathWithoutQuery returns the path of a request target, without the query, which may contain secrets.
func pathWithoutQuery(target string) string {
	path, _, _ := strings.Cut(target, "?")
	return path[:min(len(path), maxPath)]
}
