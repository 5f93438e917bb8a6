package ehbp

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// echo responds with the body of a request, and reports which headers and target arrived.
func echo(writer http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		writer.WriteHeader(http.StatusTeapot)
		return
	}
	seen := request.Header.Clone()
	seen.Set("Host", request.Host)
	seen.Set("Target", request.RequestURI)
	seen.Set("Length", fmt.Sprint(request.ContentLength))
	text, _ := json.Marshal(seen)
	writer.Header().Set("Seen", string(text))
	writer.Header().Set("Content-Type", "text/x-echo")
	_, _ = writer.Write(body)
}

func seenBy(t *testing.T, response *http.Response) http.Header {
	t.Helper()
	var seen http.Header
	if err := json.Unmarshal([]byte(response.Header.Get("Seen")), &seen); err != nil {
		t.Fatalf("%s %v", response.Status, err)
	}
	return seen
}

func TestABodyIsPassedOnAndItsResponseEncrypted(t *testing.T) {
	served := run(t, false, echo)
	from := newClient(t, served.server.identity.public())
	// The reader hides its length, so the body is chunked.
	response := served.send(t, "/v1/x", from, io.MultiReader(bytes.NewReader(from.frames("hello ", "world"))))
	if response.StatusCode != http.StatusOK || response.ContentLength != -1 || response.Header.Get("Content-Type") != "text/x-echo" {
		t.Errorf("%s %v", response.Status, response.Header)
	}
	if seen := seenBy(t, response); seen.Get("Length") != "-1" || seen.Get(encapsulatedKeyHeader) != "" || seen.Get("Accept-Encoding") != "identity" {
		t.Errorf("%v", seen)
	}
	if found, err := io.ReadAll(from.opened(response)); err != nil || string(found) != "hello world" {
		t.Errorf("%q %v", found, err)
	}
}

func TestTheRequestIsOtherwiseAsItWas(t *testing.T) {
	served := run(t, false, echo)
	for _, target := range []string{"/", "//a", "/a%2Fb/%7e", "/a?b=c;d&%zz&x=1", "/x?", "/./../y"} {
		from := newClient(t, served.server.identity.public())
		body := bytes.NewReader(from.frames("x"))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, served.url, body)
		if err != nil {
			t.Fatal(err)
		}
		request.URL.Opaque = served.url + target // as a whole, so that net/url changes nothing of it
		headers := map[string]string{
			"Forwarded": "host=a", "X-Forwarded-For": "192.0.2.1", "X-Forwarded-Host": "a", "X-Forwarded-Proto": "https",
			"Via": "1.1 Caddy", "X-Own": "1", "Content-Type": "application/json", "Authorization": "Bearer x",
		}
		for name, value := range headers {
			request.Header.Set(name, value)
		}
		request.Header.Set(encapsulatedKeyHeader, hex.EncodeToString(from.encapsulated))
		response := served.do(t, request)
		seen := seenBy(t, response)
		for name, value := range headers {
			if values := seen.Values(name); !slices.Equal(values, []string{value}) {
				t.Errorf("%s: %s: %v", target, name, values)
			}
		}
		// One frame whose length is known has a known length for the container too.
		if seen.Get("Target") != target || seen.Get("Host") != "web.example" || seen.Get("Length") != "1" {
			t.Errorf("%s: %v", target, seen)
		}
	}
}

func TestRequestsWithoutABodyStayAsTheyAre(t *testing.T) {
	for _, required := range []bool{false, true} {
		served := run(t, required, echo)
		for name, body := range map[string]io.Reader{"none": nil, "empty": http.NoBody, "empty, of unknown length": io.MultiReader(strings.NewReader(""))} {
			for _, header := range []string{"", strings.Repeat("ab", keySize)} {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, served.url+"/x", body)
				if err != nil {
					t.Fatal(err)
				}
				if header != "" {
					request.Header.Set(encapsulatedKeyHeader, header)
				}
				response := served.do(t, request)
				if response.StatusCode != http.StatusOK || response.Header.Get(responseNonceHeader) != "" || seenBy(t, response).Get(encapsulatedKeyHeader) != "" {
					t.Errorf("%s %q: %s %v", name, header, response.Status, response.Header)
				}
			}
		}
	}
}

// problemOf reads a problem that is not encrypted.
func problemOf(t *testing.T, response *http.Response) problem {
	t.Helper()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any
	var said problem
	if err := json.Unmarshal(text, &members); err != nil || len(members) != 4 {
		t.Fatalf("%s %v", text, err)
	}
	if err := json.Unmarshal(text, &said); err != nil || said.Status != response.StatusCode || response.Header.Get("Content-Type") != problemType || response.Header.Get(responseNonceHeader) != "" {
		t.Errorf("%s %s %v", response.Status, text, response.Header)
	}
	return said
}

func TestRefusalsBeforeTheContainerIsAsked(t *testing.T) {
	asked := 0
	served := run(t, true, func(http.ResponseWriter, *http.Request) { asked++ })
	from := newClient(t, served.server.identity.public())
	honest, frame := hex.EncodeToString(from.encapsulated), from.frame("x")
	for name, each := range map[string]struct {
		headers []string
		body    []byte
		want    *problem
	}{
		"no digits":            {[]string{strings.Repeat("x", 64)}, frame, badHeader},
		"too short":            {[]string{honest[2:]}, frame, badHeader},
		"too long":             {[]string{honest + "00"}, frame, badHeader},
		"upper case":           {[]string{strings.Repeat("AB", keySize)}, frame, badHeader},
		"empty":                {[]string{""}, frame, badHeader},
		"sent twice":           {[]string{honest, honest}, frame, badHeader},
		"of low order":         {[]string{strings.Repeat("0", 64)}, frame, staleKey},
		"of another request":   {[]string{hex.EncodeToString(newClient(t, served.server.identity.public()).encapsulated)}, frame, staleKey},
		"for another key":      {[]string{honest}, newClient(t, identityOf(t).public()).frame("x"), staleKey},
		"not encrypted":        {[]string{honest}, []byte(`{"model": "x", "messages": []}`), bigFrame},
		"no frame":             {[]string{honest}, length(0), noFrame},
		"cut":                  {[]string{honest}, frame[:9], badFrame},
		"too large":            {[]string{honest}, length(maxFrame + 1), bigFrame},
		"unencrypted":          {nil, []byte("hello"), plainBody},
		"unencrypted, a frame": {nil, frame, plainBody},
	} {
		for _, chunked := range []bool{false, true} {
			var body io.Reader = bytes.NewReader(each.body)
			if chunked {
				body = io.MultiReader(body)
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, served.url+"/x", body)
			if err != nil {
				t.Fatal(err)
			}
			request.Header[encapsulatedKeyHeader] = each.headers
			if said := problemOf(t, served.do(t, request)); said != *each.want {
				t.Errorf("%s: %+v", name, said)
			}
		}
	}
	if asked != 0 {
		t.Errorf("the container was asked %d times", asked)
	}
}

func TestAnUpgradeIsRefusedWhereEncryptionIsRequired(t *testing.T) {
	served := run(t, true, echo)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, served.url+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", "websocket")
	if said := problemOf(t, served.do(t, request)); said != *plainUpgrade {
		t.Errorf("%+v", said)
	}
}

// TestErrorsAfterTheFirstFrameAreEncrypted has errors of which only the client may know.
func TestErrorsAfterTheFirstFrameAreEncrypted(t *testing.T) {
	away := run(t, false, echo)
	away.server.proxy = away.server.newProxy("127.0.0.1:1")
	compressing := run(t, false, func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Content-Encoding", "gzip")
		_, _ = writer.Write([]byte("secret"))
	})
	upgrading := run(t, false, func(writer http.ResponseWriter, _ *http.Request) {
		conn, _, err := writer.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	})
	reading := run(t, false, echo)
	for name, each := range map[string]struct {
		served *running
		more   []byte
		want   *problem
	}{
		"no container":         {away, nil, noUpstream},
		"a compressed body":    {compressing, nil, compressed},
		"another protocol":     {upgrading, nil, noUpstream},
		"a frame that is cut":  {reading, length(20), badFrame},
		"a frame of nobody":    {reading, append(length(20), make([]byte, 20)...), badFrame},
		"a frame of any size":  {reading, length(maxFrame + 1), bigFrame},
		"a byte after the end": {reading, []byte{0}, badFrame},
	} {
		t.Run(name, func(t *testing.T) {
			from := newClient(t, each.served.server.identity.public())
			response := each.served.send(t, "/x", from, io.MultiReader(bytes.NewReader(append(from.frame("x"), each.more...))))
			text, err := io.ReadAll(from.opened(response))
			var said problem
			if err != nil || json.Unmarshal(text, &said) != nil || said != *each.want || response.StatusCode != said.Status || response.Header.Get("Content-Type") != problemType {
				t.Errorf("%s %s %v", response.Status, text, err)
			}
		})
	}
}

func TestBothBodiesAreStreams(t *testing.T) {
	served := run(t, false, func(writer http.ResponseWriter, request *http.Request) {
		control := http.NewResponseController(writer)
		if err := control.EnableFullDuplex(); err != nil {
			panic(err)
		}
		buffer := make([]byte, 64)
		for {
			count, err := request.Body.Read(buffer)
			if count > 0 {
				_, _ = fmt.Fprintf(writer, "data: %s\n\n", buffer[:count])
				_ = control.Flush()
			}
			if err != nil {
				return
			}
		}
	})
	from := newClient(t, served.server.identity.public())
	read, write := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, err := write.Write(from.frame("0"))
		sent <- err
	}()
	response := served.send(t, "/stream", from, read)
	plain := from.opened(response)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	for index := range 5 {
		event := make([]byte, len("data: 0\n\n"))
		if _, err := io.ReadFull(plain, event); err != nil || string(event) != fmt.Sprintf("data: %d\n\n", index) {
			t.Fatalf("%q %v", event, err)
		}
		if index < 4 {
			if _, err := write.Write(from.frame(fmt.Sprint(index + 1))); err != nil {
				t.Fatal(err)
			}
		}
	}
	write.Close()
	if rest, err := io.ReadAll(plain); err != nil || len(rest) != 0 {
		t.Errorf("%q %v", rest, err)
	}
}

// TestAResponseThatBreaksOffNeverLooksWhole has a container that ends within its response, and a client
// that damages its body while the response is under way.
func TestAResponseThatBreaksOffNeverLooksWhole(t *testing.T) {
	flush := func(writer http.ResponseWriter) {
		control := http.NewResponseController(writer)
		_ = control.EnableFullDuplex()
		_, _ = io.WriteString(writer, "data: first\n\n")
		_ = control.Flush()
	}
	ending := run(t, false, func(writer http.ResponseWriter, _ *http.Request) {
		flush(writer)
		panic(http.ErrAbortHandler)
	})
	reading := run(t, false, func(writer http.ResponseWriter, request *http.Request) {
		flush(writer)
		if _, err := io.Copy(io.Discard, request.Body); err == nil {
			_, _ = io.WriteString(writer, "the whole body")
		}
	})
	for name, served := range map[string]*running{"the container": ending, "the client": reading} {
		t.Run(name, func(t *testing.T) {
			from := newClient(t, served.server.identity.public())
			read, write := io.Pipe()
			go func() { _, _ = write.Write(from.frame("x")) }()
			response := served.send(t, "/x", from, read)
			plain := from.opened(response)
			event := make([]byte, len("data: first\n\n"))
			if _, err := io.ReadFull(plain, event); err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = write.Write(append(length(20), make([]byte, 20)...)) }()
			if rest, err := io.ReadAll(plain); err == nil || len(rest) != 0 {
				t.Errorf("it looks whole: %q", rest)
			}
			write.Close()
		})
	}
}

func TestALargeResponseIsManyFrames(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // 1 MiB
	served := run(t, false, func(writer http.ResponseWriter, _ *http.Request) { _, _ = writer.Write(text) })
	from := newClient(t, served.server.identity.public())
	response := served.send(t, "/x", from, bytes.NewReader(from.frame("x")))
	found, err := io.ReadAll(from.opened(response))
	if err != nil || !bytes.Equal(found, text) {
		t.Errorf("%d bytes, %v", len(found), err)
	}
}

func TestResponsesOfOneRequestHaveDifferentKeys(t *testing.T) {
	served := run(t, false, echo)
	from := newClient(t, served.server.identity.public())
	body := from.frame("x")
	first, second := served.send(t, "/x", from, bytes.NewReader(body)), served.send(t, "/x", from, bytes.NewReader(body))
	one, _ := io.ReadAll(first.Body)
	other, _ := io.ReadAll(second.Body)
	if first.Header.Get(responseNonceHeader) == second.Header.Get(responseNonceHeader) || bytes.Equal(one, other) {
		t.Error("a request that is sent again gets the same key")
	}
}

func TestMoreRequestsThanPlaces(t *testing.T) {
	arrived, leave := make(chan struct{}), make(chan struct{})
	served := run(t, false, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-leave
	})
	if !served.server.slots.TryAcquire(maxExchanges - 1) {
		t.Fatal("places are taken")
	}
	from := newClient(t, served.server.identity.public())
	body := from.frame("x")
	done := make(chan struct{})
	go func() {
		defer close(done)
		served.send(t, "/x", from, bytes.NewReader(body))
	}()
	<-arrived
	response := served.send(t, "/x", from, bytes.NewReader(body))
	if said := problemOf(t, response); said.Title != busy.Title || response.Header.Get("Retry-After") != "1" {
		t.Errorf("%+v %v", said, response.Header)
	}
	keys, err := http.NewRequestWithContext(t.Context(), http.MethodGet, served.url+keysPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	if response := served.do(t, keys); response.StatusCode != http.StatusOK {
		t.Errorf("the key configuration waits: %s", response.Status)
	}
	close(leave)
	<-done
}

func TestASlowFrameIsRefused(t *testing.T) {
	served := run(t, false, echo)
	served.server.grace = 100 * time.Millisecond
	from := newClient(t, served.server.identity.public())
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, served.url+"/x", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	read, write := io.Pipe()
	defer write.Close()
	request.Body, request.ContentLength = read, -1
	request.Header.Set(encapsulatedKeyHeader, hex.EncodeToString(from.encapsulated))
	go func() { _, _ = write.Write(length(100)) }()
	if said := problemOf(t, served.do(t, request)); said != *slowFrame {
		t.Errorf("%+v", said)
	}
}

// TestWhatIsLeftOfABodyIsNotARequest sends a request that is refused before its body has arrived: on the
// same connection the rest of it could pass as a request that the shim has never judged.
func TestWhatIsLeftOfABodyIsNotARequest(t *testing.T) {
	served := run(t, false, echo)
	conn, err := served.http.Transport.(*http.Transport).DialContext(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	head := "POST /x HTTP/1.1\r\nHost: a\r\n" + encapsulatedKeyHeader + ": x\r\nContent-Length: 9000000\r\n\r\n"
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil || response.StatusCode != http.StatusBadRequest || !response.Close {
		t.Fatalf("%v %v", response, err)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if rest, err := io.ReadAll(reader); len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection stays open: %q %v", rest, err)
	}
}
