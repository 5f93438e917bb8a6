package ehbp

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"
)

// exchange is one request with an encrypted body, and its response.
type exchange struct {
	encapsulated []byte
	exported     []byte
	body         *requestBody
}

// exchangeKey is the key of an exchange in the context of its request.
type exchangeKey struct{}

func exchangeOf(request *http.Request) *exchange {
	found, _ := request.Context().Value(exchangeKey{}).(*exchange)
	return found
}

// open reads the first frame of a request. It returns io.EOF for one without a body.
func (s *server) open(writer http.ResponseWriter, request *http.Request) (*exchange, error) {
	values := request.Header.Values(encapsulatedKeyHeader)
	encapsulated, err := hex.DecodeString(values[0])
	if err != nil || len(values) > 1 || len(encapsulated) != keySize || strings.ToLower(values[0]) != values[0] {
		return nil, badHeader
	}
	recipient, err := s.identity.recipient(encapsulated)
	if err != nil {
		return nil, staleKey // as if the first frame could not be opened
	}
	exported, err := recipient.Export(responseLabel, keySize)
	if err != nil {
		return nil, err
	}
	control := http.NewResponseController(writer)
	deadline := func(until time.Time) { _ = control.SetReadDeadline(until) } // else the body may be slow
	body := newRequestBody(request.Context(), request.Body, recipient, s.memory, deadline)
	body.grace = s.grace
	return &exchange{encapsulated, exported, body}, body.start()
}

// serveEncrypted decrypts a request and passes it on.
func (s *server) serveEncrypted(writer http.ResponseWriter, request *http.Request) {
	opened, err := s.open(writer, request)
	if opened != nil {
		defer opened.body.abandon()
	}
	var said *problem
	switch {
	case errors.Is(err, io.EOF):
		s.servePlain(writer, bodyless(request))
	case errors.As(err, &said):
		refuse(writer, request, said)
	case err != nil:
		panic(http.ErrAbortHandler) // the connection ended
	default:
		// The container may respond before it has read the whole body.
		control := http.NewResponseController(writer)
		_ = control.EnableFullDuplex()
		inner := request.WithContext(context.WithValue(request.Context(), exchangeKey{}, opened))
		inner.Body = opened.body
		inner.ContentLength = plainLength(request.ContentLength, len(opened.body.plain))
		s.proxy.ServeHTTP(writer, inner)
		if !errors.Is(opened.body.failure(), io.EOF) {
			drain(control, request)
		}
	}
}

// plainLength returns the length of a body of one frame, so that the container knows it; -1 if there may be
// more frames.
func plainLength(encrypted int64, frame int) int64 {
	if length := int64(frame); length > 0 && encrypted == length+lengthSize+tagSize {
		return length
	}
	return -1
}

// bodyless returns a request without its body, as the protocol passes it on: the response cannot be
// encrypted either, since nothing proves who chose the key.
func bodyless(request *http.Request) *http.Request {
	copied := request.Clone(request.Context())
	copied.Body, copied.ContentLength, copied.TransferEncoding = http.NoBody, 0, nil
	return copied
}

// servePlain passes on a request that is not encrypted.
func (s *server) servePlain(writer http.ResponseWriter, request *http.Request) {
	if s.required {
		if request.Header.Get("Upgrade") != "" {
			refuse(writer, request, plainUpgrade)
			return
		}
		if hasBody(request) {
			refuse(writer, request, plainBody)
			return
		}
		request = bodyless(request)
	}
	s.proxy.ServeHTTP(writer, request)
}

// hasBody reports whether a request has a body, of which it reads a byte when its length is not known.
func hasBody(request *http.Request) bool {
	if request.ContentLength >= 0 {
		return request.ContentLength > 0
	}
	count, err := io.ReadFull(request.Body, make([]byte, 1))
	return count > 0 || !errors.Is(err, io.EOF)
}

func (s *server) newProxy(upstream string) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:        func(both *httputil.ProxyRequest) { rewrite(both, upstream) },
		Transport:      newTransport(),
		FlushInterval:  -1,
		ErrorLog:       silent,
		ModifyResponse: seal,
		ErrorHandler:   respondFailed,
	}
}

// rewrite leaves a request as the shim wrote it, but for what is about its encryption.
func rewrite(both *httputil.ProxyRequest, upstream string) {
	out := both.Out
	out.URL.Scheme, out.URL.Host, out.URL.RawQuery = "http", upstream, both.In.URL.RawQuery
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values := both.In.Header.Values(name); len(values) > 0 {
			out.Header[name] = values
		}
	}
	out.Header.Del(encapsulatedKeyHeader)
	out.Header.Del("Expect") // its sender has received 100 Continue
	if exchangeOf(both.In) != nil {
		out.Header.Del("Content-Length")
		out.Header.Del("Connection")
		out.Header.Del("Upgrade")
		// Clients would decompress the encrypted body.
		out.Header.Set("Accept-Encoding", "identity")
	}
}

// seal encrypts the response of an encrypted request.
func seal(response *http.Response) error {
	response.Header.Del(responseNonceHeader)
	about := exchangeOf(response.Request)
	if about == nil {
		return nil
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		return noUpstream
	}
	if coding := response.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return compressed
	}
	sealer, err := about.begin(response.Header)
	if err != nil {
		return err
	}
	response.ContentLength = -1
	response.Body = newResponseBody(response.Body, sealer)
	return nil
}

// respondFailed responds in place of a container that did not, encrypted where the request was.
func respondFailed(writer http.ResponseWriter, request *http.Request, err error) {
	if request.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	about, said := exchangeOf(request), noUpstream
	if about == nil {
		refuse(writer, request, said)
		return
	}
	// The transport may report an error of the body as one of the connection.
	if !errors.As(about.body.failure(), &said) && !errors.As(err, &said) {
		said = noUpstream
	}
	text := said.describe(writer.Header())
	sealer, err := about.begin(writer.Header())
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	writer.WriteHeader(said.Status)
	_, _ = writer.Write(sealer.append(nil, text)) // the shim may be gone
}
