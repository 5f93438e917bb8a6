package verifyproxy

import (
	"encoding/json"
	"fmt"
	"net/http"

	"cloister.dev/guest/internal/client/verify"
)

// problem is the body of a refusal (RFC 9457).
type problem struct {
	Type   string       `json:"type"`
	Title  string       `json:"title"`
	Status int          `json:"status"`
	Detail string       `json:"detail"`
	Step   string       `json:"step"`
	Code   verify.Class `json:"code"`
	Remedy string       `json:"remedy"`
}

func respondWith(writer http.ResponseWriter, status int, kind, title string, failure *verify.Failure) {
	writer.Header().Set("Content-Type", "application/problem+json")
	writer.WriteHeader(status)
	_ = json.NewEncoder(writer).Encode(problem{
		Type: "https://cloister.dev/problems/" + kind, Title: title, Status: status,
		Detail: failure.Problem, Step: failure.Step, Code: failure.Class, Remedy: failure.Remedy,
	})
}

// respondUnknown refuses a request to a host name that is not the proxy's.
func respondUnknown(writer http.ResponseWriter, host string) {
	respondWith(writer, http.StatusMisdirectedRequest, "unknown-host", "The host name is not this proxy's", &verify.Failure{
		Class: verify.ClassUsage, Step: "Host", Problem: fmt.Sprintf("the request is for the host %.200q, which is not a name of this proxy", host),
		Remedy: "send it to localhost or to the address that --listen names, or start the proxy with --listen-names",
	})
}
