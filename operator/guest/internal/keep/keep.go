// Package keep is `guest keep`: a process without any right that holds the
// network namespaces of the containers while `guest net` starts anew.
//
// A namespace has no name outside the process that made it, and `guest net` may
// not open that one. Its socket is reached by our own side-cars only; the socket
// directory is mounted in no tenant's container.
package keep

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/wiring"
)

const (
	conversation = 5 * time.Second
	maxKept      = 64
)

// Words of the keeper's conversation.
const (
	askPut     = "put"
	askFetch   = "fetch"
	answerKept = "kept"
	answerEnd  = "end"
)

// message is a request or an answer.
type message struct {
	Word string `json:"word"`
	Name string `json:"name,omitempty"`
}

// Run keeps namespaces until the context ends.
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
		_ = converse(wiring.NewConn(socket), kept)
	}
}

// Check is the side-car's start-up probe: nil when the keeper listens.
func Check(path string) error {
	conn, err := wiring.Dial(path, time.Now().Add(conversation))
	if err != nil {
		return fmt.Errorf("the keeper does not listen: %w", err)
	}
	return conn.Close()
}

func converse(conn wiring.Conn, kept map[string]*os.File) error {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(conversation)); err != nil {
		return err
	}
	request, file, err := wiring.Receive[message](conn)
	if err != nil {
		return err
	}
	switch {
	case request.Word == askPut && file != nil && (kept[request.Name] != nil || len(kept) < maxKept):
		if previous := kept[request.Name]; previous != nil {
			previous.Close()
		}
		kept[request.Name] = file
		return conn.Send(message{Word: answerKept}, nil)
	case request.Word == askFetch && file == nil:
		for name, one := range kept {
			if err := conn.Send(message{Word: answerKept, Name: name}, one); err != nil {
				return err
			}
		}
		return conn.Send(message{Word: answerEnd}, nil)
	}
	if file != nil {
		file.Close()
	}
	return errors.New("a request that is not understood")
}

// Put hands a namespace to the keeper.
func Put(path, name string, namespace *os.File) error {
	conn, err := wiring.Dial(path, time.Now().Add(conversation))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Send(message{Word: askPut, Name: name}, namespace); err != nil {
		return err
	}
	answer, _, err := wiring.Receive[message](conn)
	if err == nil && answer.Word != answerKept {
		err = fmt.Errorf("the keeper answered %q", answer.Word)
	}
	return err
}

// Fetch returns all namespaces that the keeper holds, by name. The caller closes them.
func Fetch(path string) (map[string]*os.File, error) {
	conn, err := wiring.Dial(path, time.Now().Add(conversation))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.Send(message{Word: askFetch}, nil); err != nil {
		return nil, err
	}
	files := map[string]*os.File{}
	for {
		answer, file, err := wiring.Receive[message](conn)
		if err != nil {
			return nil, err
		}
		if answer.Word == answerEnd {
			return files, nil
		}
		if file != nil && answer.Name != "" {
			files[answer.Name] = file
		}
	}
}
