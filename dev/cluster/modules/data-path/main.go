// Command data-path is both ends of `python -m dev.bench data_path`: a server whose work per request is
// next to nothing, and clients that measure it.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	small = "sixty bytes of a response, which is what most requests get\n"
	large = 64 << 20
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "serve" {
		fmt.Fprintln(os.Stderr, serve(":8080"))
		os.Exit(1)
	}
	var asked load
	flag.StringVar(&asked.kind, "kind", "small", "small, connect, download, upload or events")
	flag.StringVar(&asked.address, "address", "", "host:port")
	flag.StringVar(&asked.host, "host", "", "host name; empty means plain HTTP")
	flag.BoolVar(&asked.http2, "http2", false, "HTTP/2 instead of HTTP/1.1")
	flag.IntVar(&asked.clients, "clients", 1, "clients at a time")
	flag.DurationVar(&asked.span, "span", time.Second, "how long")
	flag.Parse()
	found, err := asked.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(found)
}

// serve serves every path of the kinds.
func serve(address string) error {
	body := bytes.Repeat([]byte("0123456789abcdef"), large/16)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, small) })
	mux.HandleFunc("/download", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	mux.HandleFunc("/upload", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: first\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	return (&http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: time.Minute}).ListenAndServe()
}

// load is what clients do.
type load struct {
	kind, address, host string
	http2               bool
	clients             int
	span                time.Duration
}

// result is what they saw; times are in milliseconds.
type result struct {
	PerSecond float64 `json:"perSecond"`
	Median    float64 `json:"median"`
	P99       float64 `json:"p99"`
	Count     int     `json:"count"`
}

// client returns a client with connections of its own; none is kept with the kind connect.
func (l load) client() *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!l.http2)
	protocols.SetHTTP2(l.http2)
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, l.address)
		},
		DisableCompression: true,
		DisableKeepAlives:  l.kind == "connect",
		Protocols:          protocols,
		// Only the path of the bytes is measured.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: l.host},
	}}
}

func (l load) run() (result, error) {
	var mutex sync.Mutex
	var times []time.Duration
	var failed error
	begin := time.Now()
	var group sync.WaitGroup
	for range l.clients {
		group.Go(func() {
			own, err := l.repeat(l.client(), begin.Add(l.span))
			mutex.Lock()
			defer mutex.Unlock()
			times, failed = append(times, own...), errors.Join(failed, err)
		})
	}
	group.Wait()
	elapsed := time.Since(begin)
	if failed != nil || len(times) == 0 {
		return result{}, fmt.Errorf("%s: %w", l.kind, failed)
	}
	slices.Sort(times)
	at := func(share int) float64 { return times[(len(times)-1)*share/100].Seconds() * 1000 }
	return result{PerSecond: float64(len(times)) / elapsed.Seconds(), Median: at(50), P99: at(99), Count: len(times)}, nil
}

// repeat sends one request after the other until a time, and at least one.
func (l load) repeat(client *http.Client, until time.Time) ([]time.Duration, error) {
	var times []time.Duration
	for {
		begin := time.Now()
		if err := l.once(client); err != nil {
			return times, err
		}
		times = append(times, time.Since(begin))
		if time.Now().After(until) {
			return times, nil
		}
	}
}

func (l load) once(client *http.Client) error {
	scheme, host, method, path := "https", l.host, http.MethodGet, "/"+strings.Trim(l.kind, "/")
	if host == "" {
		scheme, host = "http", l.address
	}
	var body io.Reader
	switch l.kind {
	case "small", "connect":
		path = "/"
	case "upload":
		method, body = http.MethodPost, io.LimitReader(zeros{}, large)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, scheme+"://"+host+path, body)
	if err != nil {
		return err
	}
	if body != nil {
		request.ContentLength = large
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s responded with %s", path, response.Status)
	}
	if l.kind == "events" {
		_, err = io.ReadFull(response.Body, make([]byte, len("data: first\n\n")))
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

type zeros struct{}

func (zeros) Read(into []byte) (int, error) { return len(into), nil }
