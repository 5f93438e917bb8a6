package certificate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	endpoint       = "/api/shim/cert"
	requestTimeout = 30 * time.Second
	maxAnswer      = 1 << 18
)

// requestError is the error of a request without a certificate.
type requestError struct {
	// message is human-readable: the API's error, or why it cannot be reached.
	message string
	// after is the Retry-After of the API; 0 means none.
	after time.Duration
	// queued means that the order is being processed.
	queued bool
	// final means that the same request will get the same response.
	final bool
}

func (p *requestError) Error() string { return p.message }

// apiResponse is the part of the API's response that is read; later versions may add fields.
type apiResponse struct {
	Certificate string `json:"certificate"`
	Error       string `json:"error"`
	Message     string `json:"message"`
}

// requestCertificate sends a signing request and returns the chain, or a requestError.
func (r *runner) requestCertificate(ctx context.Context, request []byte) ([]byte, error) {
	token, err := r.spec.token()
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(map[string]string{"csr": string(request)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, r.spec.API.At(endpoint), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	call.Header.Set("Authorization", "Bearer "+token)
	call.Header.Set("Content-Type", "application/json")
	response, err := r.client.Do(call)
	if err != nil {
		return nil, &requestError{message: fmt.Sprintf("the API at %s cannot be reached: %v", r.spec.API.URL, causeOf(err))}
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil || len(data) > maxAnswer {
		return nil, &requestError{message: fmt.Sprintf("the response of the API at %s broke off or is too long", r.spec.API.URL)}
	}
	return parseResponse(response, data)
}

// parseResponse returns the chain of a response, or a requestError.
func parseResponse(response *http.Response, data []byte) ([]byte, error) {
	var said apiResponse
	if err := json.Unmarshal(data, &said); err != nil {
		return nil, &requestError{message: fmt.Sprintf("the API returned %d with something that is not JSON", response.StatusCode)}
	}
	after := time.Duration(0)
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		after = time.Duration(seconds) * time.Second
	}
	switch response.StatusCode {
	case http.StatusOK:
		return []byte(said.Certificate), nil
	case http.StatusAccepted:
		return nil, &requestError{message: "the certificate is ordered: " + said.Message, after: after, queued: true}
	case http.StatusBadRequest, http.StatusForbidden, http.StatusConflict:
		return nil, &requestError{message: "the API refused: " + said.Error, final: true}
	}
	return nil, &requestError{message: fmt.Sprintf("the API returned %d: %s", response.StatusCode, said.Error), after: after}
}

// causeOf returns the cause of a failed request without its URL, which is already in the message.
func causeOf(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
