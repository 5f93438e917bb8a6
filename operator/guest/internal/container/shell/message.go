// Package shell is the protocol between `guest ssh` and process 1 of a debug container: one
// connection for each program that a client starts, one JSON document for each message, the
// program's streams as descriptors with the first.
//
// Both sides bound and validate what they receive: behind process 1 is the tenant, behind
// `guest ssh` a client on the network.
package shell

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/containerspec"
	"cloister.dev/guest/internal/foundation/fdpass"
	"cloister.dev/guest/internal/foundation/pattern"
	"cloister.dev/guest/internal/foundation/strictjson"
)

// Kinds of requests. The first one is RequestStart.
const (
	// RequestStart starts a program on the descriptors that are sent with it: input, output, errors.
	RequestStart = "start"
	// RequestSignal sends a signal to the program's process group.
	RequestSignal = "signal"
	// RequestSize changes the size of the terminal.
	RequestSize = "size"
)

// Kinds of responses of process 1.
const (
	// ResponseStarted: the program runs.
	ResponseStarted = "started"
	// ResponseRefused: nothing was started; see Reason.
	ResponseRefused = "refused"
	// ResponseExited: the program has exited with Code or by Signal, and nothing follows.
	ResponseExited = "ended"
)

// Bounds of a request.
const (
	maxCommand     = 64 << 10
	MaxEnvironment = 64
	maxVariable    = 1 << 10
	maxMessage     = 192 << 10
	streams        = 3
	maxCells       = 1 << 15
)

var variablePattern = pattern.Lazy(`^[A-Za-z_][A-Za-z0-9_]{0,254}$`)

// Request is a message of `guest ssh`.
type Request struct {
	// Kind is one of the Request constants.
	Kind string `json:"ask"`
	// Start is the program to start, for RequestStart.
	Start *Start `json:"start,omitempty"`
	// Signal is a name without SIG, for RequestSignal.
	Signal string `json:"signal,omitempty"`
	// Size is the terminal's, for RequestSize.
	Size *Size `json:"size,omitempty"`
}

// Start is a program to start.
type Start struct {
	// Command is one line for the user's shell; empty means a login shell.
	Command string `json:"command,omitempty"`
	// Files starts the guest's SFTP server instead.
	Files bool `json:"files,omitempty"`
	// Terminal gives the program a terminal; nil means that it gets the descriptors themselves.
	Terminal *Terminal `json:"terminal,omitempty"`
	// Environment are further variables as NAME=value.
	Environment []string `json:"environment,omitempty"`
}

// Terminal is a terminal to create.
type Terminal struct {
	// Name is the value of TERM.
	Name string `json:"name"`
	// Size is its size.
	Size Size `json:"size"`
}

// Size is the size of a terminal in cells; 0 means not known.
type Size struct {
	Columns uint32 `json:"columns"`
	Rows    uint32 `json:"rows"`
}

// Response is a message of process 1.
type Response struct {
	// Kind is one of the Response constants.
	Kind string `json:"answer"`
	// Reason is human-readable: why nothing was started.
	Reason string `json:"reason,omitempty"`
	// Code is the program's exit code, or that of a failed start.
	Code int `json:"code,omitempty"`
	// Signal is the name, without SIG, of the signal that killed it; empty means that it exited.
	Signal string `json:"signal,omitempty"`
}

// Check returns an error if the request is invalid.
func (r Request) Check() error {
	switch {
	case r.Kind == RequestStart && r.Start != nil && r.Signal == "" && r.Size == nil:
		return r.Start.check()
	case r.Kind == RequestSignal && r.Signal != "" && r.Start == nil && r.Size == nil:
		_, err := containerspec.ParseSignal(r.Signal)
		return err
	case r.Kind == RequestSize && r.Size != nil && r.Start == nil && r.Signal == "":
		return r.Size.check()
	}
	return fmt.Errorf("the request %q is not known", r.Kind)
}

func (s Start) check() error {
	if len(s.Command) > maxCommand || strings.ContainsRune(s.Command, 0) {
		return fmt.Errorf("the command is longer than %d bytes or contains a zero byte", maxCommand)
	}
	if s.Files && (s.Command != "" || s.Terminal != nil) {
		return errors.New("the file server does not take a command or a terminal")
	}
	if len(s.Environment) > MaxEnvironment {
		return fmt.Errorf("%d variables, at most %d", len(s.Environment), MaxEnvironment)
	}
	for _, entry := range s.Environment {
		name, value, _ := strings.Cut(entry, "=")
		if err := CheckVariable(name, value); err != nil {
			return err
		}
	}
	if s.Terminal == nil {
		return nil
	}
	if len(s.Terminal.Name) > 64 || strings.ContainsFunc(s.Terminal.Name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("the name of the terminal is invalid")
	}
	return s.Terminal.Size.check()
}

func (s Size) check() error {
	if s.Columns >= maxCells || s.Rows >= maxCells {
		return fmt.Errorf("a terminal of %d x %d cells is too large", s.Columns, s.Rows)
	}
	return nil
}

// CheckVariable returns an error if a variable of the environment is invalid.
func CheckVariable(name, value string) error {
	if !variablePattern().MatchString(name) || len(value) > maxVariable || strings.ContainsRune(value, 0) {
		return fmt.Errorf("the variable %q is invalid", name)
	}
	return nil
}

// Conn is one connection.
type Conn struct{ socket *net.UnixConn }

// NewConn wraps an accepted connection.
func NewConn(socket *net.UnixConn) Conn { return Conn{socket} }

// Close closes the connection.
func (c Conn) Close() error { return c.socket.Close() }

// SetDeadline bounds the next reads and writes; the zero time removes the bound.
func (c Conn) SetDeadline(deadline time.Time) error { return c.socket.SetDeadline(deadline) }

// Peer returns the uid of the peer in this side's user namespace.
func (c Conn) Peer() (uint32, error) {
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var about *unix.Ucred
	var failed error
	if err := raw.Control(func(descriptor uintptr) {
		about, failed = unix.GetsockoptUcred(int(descriptor), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	return about.Uid, nil
}

// send sends a message, with descriptors or without.
func (c Conn) send(message any, descriptors ...int) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	var rights []byte
	if len(descriptors) > 0 {
		rights = unix.UnixRights(descriptors...)
	}
	_, _, err = c.socket.WriteMsgUnix(data, rights, nil)
	return err
}

// Respond sends a response.
func (c Conn) Respond(response Response) error { return c.send(response) }

// Receive reads one message of type T and the files with it, which the caller closes.
func Receive[T any](c Conn) (T, []*os.File, error) {
	var zero T
	data := make([]byte, maxMessage)
	rights := make([]byte, unix.CmsgSpace(4*(streams+1)))
	count, rightsCount, flags, _, err := c.socket.ReadMsgUnix(data, rights)
	if err != nil {
		return zero, nil, err
	}
	files, err := fdpass.ParseRights(rights[:rightsCount])
	if err != nil {
		return zero, nil, err
	}
	message, err := decode[T](data[:count], len(files), flags)
	if err != nil {
		CloseAll(files)
		return zero, nil, err
	}
	return message, files, nil
}

func decode[T any](data []byte, files, flags int) (T, error) {
	var zero T
	if files > streams || flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0 {
		return zero, errors.New("a message on the shell socket is too large")
	}
	if len(data) == 0 && files == 0 {
		return zero, errors.New("the peer has closed the shell socket")
	}
	message, err := strictjson.Decode[T](data)
	if err != nil {
		return zero, fmt.Errorf("a message on the shell socket cannot be read: %w", err)
	}
	return message, nil
}

// CloseAll closes files; a nil one was never opened.
func CloseAll(files []*os.File) {
	for _, file := range files {
		if file != nil {
			file.Close()
		}
	}
}
