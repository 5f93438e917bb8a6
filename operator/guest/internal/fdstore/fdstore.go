// Package fdstore is `guest keep`: a process without any right that holds files of
// our other sidecars while those start anew: the network namespaces of the
// containers for `guest net`, their processes and counters for `guest agent`.
//
// None of these has a name outside the container that it belongs to, where the
// sidecars may open nothing. The keeper's socket is reached by our own sidecars only; the socket
// directory is mounted in no tenant's container.
package fdstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/fdpass"
)

const (
	connTimeout = 5 * time.Second
	maxStored   = 512
)

// Words of the keeper's conversation.
const (
	requestPut     = "put"
	requestFetch   = "fetch"
	responseStored = "kept"
	responseEnd    = "end"
)

// message is a request or an answer.
type message struct {
	Kind string `json:"word"`
	// Name is what is put, or the beginning of the names that are fetched.
	Name string `json:"name,omitempty"`
}

// Namespaces begins the names of what `guest net` puts, Containers of what `guest agent` puts.
const (
	Namespaces = "namespace/"
	Containers = "container/"
)

// Run keeps files until the context ends.
func Run(ctx context.Context, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// Root without the capability to override permissions, `guest net`, must reach it too.
	previous := unix.Umask(0o111)
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	unix.Umask(previous)
	if err != nil {
		return fmt.Errorf("the keeper cannot listen: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	kept := map[string]*os.File{}
	for {
		socket, err := listener.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the keeper cannot listen: %w", err)
		}
		// One broken conversation is that side's problem; it closes and the next is served.
		_ = handleConn(fdpass.NewConn(socket), kept)
	}
}

// Check is the sidecar's startup probe: nil when the fd store listens.
func Check(path string) error {
	conn, err := fdpass.Dial(path, time.Now().Add(connTimeout))
	if err != nil {
		return fmt.Errorf("the keeper does not listen: %w", err)
	}
	return conn.Close()
}

func handleConn(conn fdpass.Conn, kept map[string]*os.File) error {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(connTimeout)); err != nil {
		return err
	}
	request, file, err := fdpass.Receive[message](conn)
	if err != nil {
		return err
	}
	switch {
	case request.Kind == requestPut && file != nil && (kept[request.Name] != nil || len(kept) < maxStored):
		if previous := kept[request.Name]; previous != nil {
			previous.Close()
		}
		kept[request.Name] = file
		return conn.Send(message{Kind: responseStored}, nil)
	case request.Kind == requestFetch && file == nil:
		for name, one := range kept {
			if !strings.HasPrefix(name, request.Name) {
				continue
			}
			if err := conn.Send(message{Kind: responseStored, Name: name}, one); err != nil {
				return err
			}
		}
		return conn.Send(message{Kind: responseEnd}, nil)
	}
	if file != nil {
		file.Close()
	}
	return errors.New("a request that is not understood")
}

// Store hands a file to the keeper, in the place of what it had under the name.
func Store(path, name string, file *os.File) error {
	conn, err := fdpass.Dial(path, time.Now().Add(connTimeout))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Send(message{Kind: requestPut, Name: name}, file); err != nil {
		return err
	}
	answer, _, err := fdpass.Receive[message](conn)
	if err == nil && answer.Kind != responseStored {
		err = fmt.Errorf("the keeper answered %q", answer.Kind)
	}
	return err
}

// Fetch returns what the keeper holds under names with a beginning, by the rest of
// the name. The caller closes the files.
func Fetch(path, beginning string) (map[string]*os.File, error) {
	conn, err := fdpass.Dial(path, time.Now().Add(connTimeout))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.Send(message{Kind: requestFetch, Name: beginning}, nil); err != nil {
		return nil, err
	}
	files := map[string]*os.File{}
	for {
		answer, file, err := fdpass.Receive[message](conn)
		if err != nil {
			return nil, err
		}
		if answer.Kind == responseEnd {
			return files, nil
		}
		if file != nil && answer.Name != "" {
			files[strings.TrimPrefix(answer.Name, beginning)] = file
		}
	}
}
