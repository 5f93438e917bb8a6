package dns

import (
	"context"
	"net"
	"testing"
	"time"
)

// isOpen reports whether the server keeps a connection: a byte arrives, or the connection ends.
func isOpen(t *testing.T, from net.Conn) bool {
	t.Helper()
	if err := from.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err := from.Read(make([]byte, 1))
	return err == nil
}

func TestConnectionsAreBoundedForEachContainer(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := bounded(inner, 2, 3)
	defer listener.Close()
	accepted := make(chan net.Conn, 8)
	go func() {
		for {
			one, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = one.Write([]byte{1})
			accepted <- one
		}
	}()
	dial := func(from string) net.Conn {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		made, err := dialer.DialContext(context.Background(), "tcp4", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { made.Close() })
		return made
	}
	for index, step := range []struct {
		from string
		open bool
	}{{"127.0.0.2", true}, {"127.0.0.2", true}, {"127.0.0.2", false}, {"127.0.0.3", true}, {"127.0.0.4", false}} {
		if open := isOpen(t, dial(step.from)); open != step.open {
			t.Errorf("connection %d from %s: open is %t", index, step.from, open)
		}
	}
	first := <-accepted
	first.Close()
	first.Close() // counts once
	if !isOpen(t, dial("127.0.0.2")) {
		t.Error("a closed connection left no room")
	}
	if isOpen(t, dial("127.0.0.2")) {
		t.Error("closing a connection twice made room for two")
	}
}
