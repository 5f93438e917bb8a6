package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"cloister.dev/guest/internal/client/bundle"
	"cloister.dev/guest/internal/client/enclaveconn"
	"cloister.dev/guest/internal/client/verify"
	"cloister.dev/guest/internal/client/verifyproxy"
	"cloister.dev/guest/internal/evidence/collateral"
)

const (
	// collateralAge is how long what a vendor publishes is cached.
	collateralAge = time.Hour
	// headerTime is how long a local client may take for the head of a request.
	headerTime = 30 * time.Second
	// endTime is how long requests may take after the program is asked to end.
	endTime = 5 * time.Second
)

// runProxy verifies once, serves until it is asked to end, and returns the verdict if nothing was served.
func runProxy(ctx context.Context, chosen options, messages io.Writer) verdict {
	judge, err := newJudge(ctx, chosen)
	if err != nil {
		return refused(verdict{host: chosen.target.Host}, err)
	}
	checker := &proxyChecker{judge: judge, since: time.Now()}
	logger := log.New(messages, "", log.LstdFlags|log.LUTC|log.Lmsgprefix)
	names := verifyproxy.Names{Listed: strings.Split(strings.ToLower(chosen.names), ","), Addresses: chosen.anywhere}
	proxy := verifyproxy.New(chosen.target.Host, names, checker.verify, logger)
	if err := proxy.Recheck(ctx); err != nil {
		return refused(checker.last, err)
	}
	listener, err := net.Listen("tcp", chosen.listen)
	if err != nil {
		return refused(checker.last, &verify.Failure{Class: verify.ClassUsage, Step: "--listen", Problem: err.Error(), Remedy: "name an address that is free"})
	}
	checker.last.report(chosen, messages, messages)
	fmt.Fprintf(messages, "serving http://%s/\n", listener.Addr())
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go proxy.Watch(watching, chosen.recheck)
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: headerTime, ErrorLog: logger}
	go func() {
		<-watching.Done()
		ending, done := context.WithTimeout(context.Background(), endTime)
		defer done()
		if server.Shutdown(ending) != nil {
			_ = server.Close()
		}
	}()
	_ = server.Serve(listener) // it ends because it was asked to
	return verdict{}
}

// proxyChecker verifies the connections of a proxy.
type proxyChecker struct {
	mutex sync.Mutex
	judge *judge
	since time.Time
	last  verdict
}

func (c *proxyChecker) verify(ctx context.Context) (*enclaveconn.Connection, [sha256.Size]byte, error) {
	connection, err := enclaveconn.Open(ctx, c.judge.options.target)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	now := time.Now()
	if err != nil {
		c.last = c.judge.start(now)
		return nil, [sha256.Size]byte{}, &verify.Failure{
			Class: verify.ClassUnreachable, Step: "connect", Problem: err.Error(), Remedy: "check the host name, --service and that the container is ready",
		}
	}
	if now.Sub(c.since) > collateralAge {
		c.judge.recorder, c.since = &bundle.Recorder{Fetch: collateral.FromVendors}, now
	}
	made := c.judge.judge(presented{document: connection.Document, key: connection.Key, nonce: connection.Nonce}, now)
	c.last = made
	if made.failure != nil {
		_ = connection.Close()
		// The proxy adds the refused step itself.
		c.last.steps = c.last.steps[:len(c.last.steps)-1]
		return nil, [sha256.Size]byte{}, made.failure
	}
	return connection, made.measurement, nil
}
