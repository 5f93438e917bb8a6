package forwardauth

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"
)

// refusal is the error body of a refused request.
type refusal struct {
	message string
	kind    string
	code    string
}

// Types of errors, as in inference APIs.
const (
	kindRequest = "invalid_request_error"
	kindQuota   = "insufficient_quota"
	kindRate    = "rate_limit_error"
	kindServer  = "server_error"
)

var refusals = map[int]refusal{
	http.StatusUnauthorized:       {"The API key is not valid: it is unknown, expired or disabled.", kindRequest, "invalid_api_key"},
	http.StatusPaymentRequired:    {"The API key has no quota left: raise its limit or settle the organization's billing.", kindQuota, "insufficient_quota"},
	http.StatusForbidden:          {"The API key is not for this domain.", kindRequest, "domain_not_allowed"},
	http.StatusTooManyRequests:    {"Too many requests: try again later.", kindRate, "rate_limit_exceeded"},
	http.StatusServiceUnavailable: {"The API key cannot be checked at the moment: try again later.", kindServer, "key_check_unavailable"},
}

var noKey = refusal{"No API key: send it as \"Authorization: Bearer <key>\".", kindRequest, "invalid_api_key"}

// refuse responds to a request that does not pass.
func refuse(writer http.ResponseWriter, response decision) {
	refuseAs(writer, response, refusals[response.status])
}

func refuseAs(writer http.ResponseWriter, response decision, said refusal) {
	header := writer.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	if response.status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", "Bearer")
	}
	if response.wait > 0 {
		header.Set("Retry-After", wholeSeconds(response.wait))
	}
	writer.WriteHeader(response.status)
	body := map[string]any{"error": map[string]string{"message": said.message, "type": said.kind, "code": said.code}}
	_ = json.NewEncoder(writer).Encode(body) // the shim may be gone
}

// wholeSeconds formats a duration in seconds, rounded up, at least one.
func wholeSeconds(wait time.Duration) string {
	return strconv.FormatInt(int64(math.Max(1, math.Ceil(wait.Seconds()))), 10)
}
