// Package fdstore is `guest keep`: an unprivileged process that stores file descriptors
// of our other sidecars over their restarts: the network namespaces of the containers
// for `guest net`, their processes and counters for `guest agent`.
//
// None of these has a path outside its container, where the sidecars may open nothing.
// Only our own sidecars reach the socket; its directory is not mounted in any tenant's
// container.
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

	"cloister.dev/guest/internal/foundation/fdpass"
	"cloister.dev/guest/internal/foundation/report"
)

const (
	connTimeout = 5 * time.Second
	maxStored   = 512
)

// Kinds of messages.
const (
	requestPut     = "put"
	requestFetch   = "fetch"
	responseStored = "kept"
	responseEnd    = "end"
)

// message is a request or a response.
type message struct {
	Kind string `json:"word"`
	// Name is the name of the stored file, or the prefix of the names to fetch.
	Name string `json:"name,omitempty"`
}

// Namespaces is the name prefix of the files of `guest net`, Containers of those of `guest agent`.
const (
	Namespaces = "namespace/"
	Containers = "container/"
)

// Run stores files until the context is done.
func Run(ctx context.Context, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// Root without the capability to override permissions, `guest net`, must reach it too.
	previous := unix.Umask(0o111)
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	unix.Umask(previous)
	if err != nil {
		return fmt.Errorf("the fd store cannot listen: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	stored := map[string]*os.File{}
	for {
		socket, err := listener.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the fd store cannot listen: %w", err)
		}
		// A broken connection concerns its client only: it is closed and the next one is served.
		_ = handleConn(fdpass.NewConn(socket), stored)
	}
}

// AwaitContainers waits until the containers whose processes are stored have ended: what serves them
// ends after them. Without an fd store it returns immediately.
func AwaitContainers(path string) {
	files, err := Fetch(path, Containers)
	if err != nil {
		return
	}
	for name, file := range files {
		if strings.HasSuffix(name, "/"+report.Process) {
			awaitEnd(file)
		}
		file.Close()
	}
}

// awaitEnd waits for the end of the process of a pidfd, pidfd_open(2).
func awaitEnd(process *os.File) {
	poll := []unix.PollFd{{Fd: int32(process.Fd()), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(poll, -1); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func handleConn(conn fdpass.Conn, stored map[string]*os.File) error {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(connTimeout)); err != nil {
		return err
	}
	request, file, err := fdpass.Receive[message](conn)
	if err != nil {
		return err
	}
	switch {
	case request.Kind == requestPut && file != nil && (stored[request.Name] != nil || len(stored) < maxStored):
		if previous := stored[request.Name]; previous != nil {
			previous.Close()
		}
		stored[request.Name] = file
		return conn.Send(message{Kind: responseStored}, nil)
	case request.Kind == requestFetch && file == nil:
		for name, one := range stored {
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
	return errors.New("invalid request")
}

// Store sends a file to the fd store, where it replaces one with the same name.
func Store(path, name string, file *os.File) error {
	conn, err := fdpass.Dial(path, time.Now().Add(connTimeout))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Send(message{Kind: requestPut, Name: name}, file); err != nil {
		return err
	}
	response, _, err := fdpass.Receive[message](conn)
	if err == nil && response.Kind != responseStored {
		err = fmt.Errorf("the fd store responded %q", response.Kind)
	}
	return err
}

// Fetch returns the stored files whose names have a prefix, by the rest of the name. The
// caller closes the files. The fd store may be starting.
func Fetch(path, beginning string) (map[string]*os.File, error) {
	conn, err := fdpass.DialUntil(path, time.Now().Add(connTimeout))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.Send(message{Kind: requestFetch, Name: beginning}, nil); err != nil {
		return nil, err
	}
	files := map[string]*os.File{}
	for {
		response, file, err := fdpass.Receive[message](conn)
		if err != nil {
			return nil, err
		}
		if response.Kind == responseEnd {
			return files, nil
		}
		if file != nil && response.Name != "" {
			files[strings.TrimPrefix(response.Name, beginning)] = file
		}
	}
}
