package ehbp

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Names and media types of the protocol.
const (
	// keysPath is where clients find the key configuration.
	keysPath = "/.well-known/hpke-keys"
	// encapsulatedKeyHeader marks a request whose body is encrypted.
	encapsulatedKeyHeader = "Ehbp-Encapsulated-Key"
	// responseNonceHeader marks a response whose body is encrypted.
	responseNonceHeader = "Ehbp-Response-Nonce"

	keysType    = "application/ohttp-keys"
	problemType = "application/problem+json"
	// staleKeyType is the type of a problem on which clients fetch the key configuration again.
	staleKeyType = "urn:ietf:params:ehbp:error:key-config"
	noType       = "about:blank"

	drainTime = time.Second
	drainSize = 256 << 10
)

// problem is a document of RFC 9457, with only its members: there are clients that refuse others.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	retry  bool
}

// Error returns the detail.
func (p *problem) Error() string { return p.Detail }

// None of these reports which step of the cryptography failed.
var (
	badHeader = &problem{noType, "Malformed encapsulated key", http.StatusBadRequest,
		encapsulatedKeyHeader + ": must be sent once, with 64 lower-case hexadecimal digits. Use a client of the Encrypted HTTP Body Protocol.", false}
	staleKey = &problem{staleKeyType, "Key configuration mismatch", http.StatusUnprocessableEntity,
		"The body was not encrypted to this enclave's key, and nothing of it was processed. Fetch " + keysPath + ", verify the key, and send the request again.", false}
	badFrame = &problem{noType, "Malformed encrypted body", http.StatusBadRequest,
		"A frame of the encrypted body is incomplete, out of order or changed. The container did not get the whole body; encrypt the request newly and send it again.", false}
	noFrame = &problem{noType, "Empty encrypted body", http.StatusBadRequest,
		"The body has no encrypted frame, so nothing shows who chose the key of the response. Send a body, or neither a body nor " + encapsulatedKeyHeader + ".", false}
	bigFrame = &problem{noType, "Frame too large", http.StatusRequestEntityTooLarge,
		"A frame of the encrypted body is larger than 16 MiB. Encrypt the body in smaller frames, such as of 64 KiB.", false}
	slowFrame = &problem{noType, "Frame too slow", http.StatusRequestTimeout,
		"A frame of the encrypted body arrived more slowly than 64 KiB per second. Encrypt the body in smaller frames, such as of 64 KiB.", false}
	busy = &problem{noType, "Too many encrypted bodies", http.StatusServiceUnavailable,
		"The enclave processes as many encrypted bodies as it can. Try again in a moment.", true}
	plainBody = &problem{noType, "Encrypted body required", http.StatusBadRequest,
		"This service accepts no unencrypted body (shim.ehbp: required). Encrypt it with a client of the Encrypted HTTP Body Protocol; the key configuration is at " + keysPath + ".", false}
	plainUpgrade = &problem{noType, "Encrypted body required", http.StatusBadRequest,
		"This service accepts no WebSocket and no other upgrade (shim.ehbp: required), since its content could not be encrypted. Send a request with an encrypted body.", false}
	noUpstream = &problem{noType, "Bad gateway", http.StatusBadGateway,
		"The container does not answer.", false}
	compressed = &problem{noType, "Compressed response", http.StatusBadGateway,
		"The container compressed its response, although the request said Accept-Encoding: identity: clients would decompress what is encrypted. Turn compression off in the container.", false}
	onlyGet = &problem{noType, "Method not allowed", http.StatusMethodNotAllowed,
		"The key configuration is read with GET.", false}
)

// describe sets the headers of a problem, and returns its text.
func (p *problem) describe(header http.Header) []byte {
	header.Set("Content-Type", problemType)
	header.Set("Cache-Control", "no-store")
	if p.retry {
		header.Set("Retry-After", "1")
	}
	text, _ := json.Marshal(p) // strings and a number
	return append(text, '\n')
}

// refuse responds with a problem that is not encrypted, immediately, and then reads some of what the client
// still sends: a connection that is closed before would lose the response.
func refuse(writer http.ResponseWriter, request *http.Request, said *problem) {
	control := http.NewResponseController(writer)
	_ = control.EnableFullDuplex()
	text := said.describe(writer.Header())
	writer.Header().Set("Content-Length", strconv.Itoa(len(text)))
	writer.WriteHeader(said.Status)
	_, _ = writer.Write(text) // the shim may be gone
	_ = control.Flush()
	drain(control, request)
}

// drain reads some of a body that is no longer read.
func drain(control *http.ResponseController, request *http.Request) {
	_ = control.SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.CopyN(io.Discard, request.Body, drainSize)
}
