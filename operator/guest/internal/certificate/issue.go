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

// requestError is an answer without a certificate.
type requestError struct {
	// message is for people: what the API said, or why it was not reached.
	message string
	// after is when the API wants to be asked again; 0 means that it did not say.
	after time.Duration
	// queued tells that the order is on its way.
	queued bool
	// spent tells that the same request will get no other answer.
	final bool
}

func (p *requestError) Error() string { return p.message }

// apiResponse is what of the API's answers is read; unknown fields are later ones.
type apiResponse struct {
	Certificate string `json:"certificate"`
	Error       string `json:"error"`
	Message     string `json:"message"`
}

// requestCertificate sends a signing request and returns the chain, or a problem.
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
		return nil, &requestError{message: fmt.Sprintf("the API at %s is not reached: %v", r.spec.API.URL, causeOf(err))}
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil || len(data) > maxAnswer {
		return nil, &requestError{message: fmt.Sprintf("the answer of the API at %s broke off or is too long", r.spec.API.URL)}
	}
	return parseResponse(response, data)
}

// parseResponse makes a chain or a problem of an answer.
func parseResponse(response *http.Response, data []byte) ([]byte, error) {
	var said apiResponse
	if err := json.Unmarshal(data, &said); err != nil {
		return nil, &requestError{message: fmt.Sprintf("the API answered %d with something that is not JSON", response.StatusCode)}
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
	return nil, &requestError{message: fmt.Sprintf("the API answered %d: %s", response.StatusCode, said.Error), after: after}
}

// causeOf answers the cause of a failed call without its address, which stands in the message already.
func causeOf(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
