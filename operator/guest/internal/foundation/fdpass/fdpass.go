// Package fdpass is a connection on a Unix socket that carries JSON messages with
// file descriptors (SCM_RIGHTS).
package fdpass

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/foundation/strictjson"
)

// dialPause is the time between two attempts of DialUntil.
const dialPause = 20 * time.Millisecond

// maxMessage is the largest message in bytes.
const maxMessage = 64 << 10

// ErrGone is returned if the peer has closed the connection.
var ErrGone = errors.New("the peer has closed the socket")

// Conn is one connection.
type Conn struct{ socket *net.UnixConn }

// NewConn wraps an accepted connection.
func NewConn(socket *net.UnixConn) Conn { return Conn{socket} }

// Dial opens a connection; all reads and writes must finish by the deadline.
func Dial(path string, deadline time.Time) (Conn, error) {
	dialer := net.Dialer{Deadline: deadline}
	socket, err := dialer.Dial("unixpacket", path)
	if err != nil {
		return Conn{}, err
	}
	unixSocket, isUnix := socket.(*net.UnixConn)
	if !isUnix {
		return Conn{}, errors.New("not a Unix socket")
	}
	return Conn{unixSocket}, unixSocket.SetDeadline(deadline)
}

// Close closes the connection.
func (c Conn) Close() error { return c.socket.Close() }

// SetDeadline bounds the next reads and writes.
func (c Conn) SetDeadline(deadline time.Time) error { return c.socket.SetDeadline(deadline) }

// Send writes a message with files; nil files are left out.
func (c Conn) Send(message any, files ...*os.File) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	descriptors := []int{}
	for _, file := range files {
		if file != nil {
			descriptors = append(descriptors, int(file.Fd()))
		}
	}
	var rights []byte
	if len(descriptors) > 0 {
		rights = unix.UnixRights(descriptors...)
	}
	_, _, err = c.socket.WriteMsgUnix(data, rights, nil)
	return err
}

// Receive reads one message of type T and at most one file with it, nil if there is
// none. The caller closes the file.
func Receive[T any](c Conn) (T, *os.File, error) {
	message, files, err := ReceiveAll[T](c, 1)
	if err != nil || len(files) == 0 {
		return message, nil, err
	}
	return message, files[0], nil
}

// ReceiveAll reads one message of type T and at most most files with it. The caller
// closes them; on an error none stays open.
func ReceiveAll[T any](c Conn, most int) (T, []*os.File, error) {
	var zero T
	data := make([]byte, maxMessage)
	rights := make([]byte, unix.CmsgSpace((most+3)*4))
	count, rightsCount, flags, _, err := c.socket.ReadMsgUnix(data, rights)
	if err != nil {
		return zero, nil, err
	}
	files, err := ParseRights(rights[:rightsCount])
	if err != nil {
		return zero, nil, err
	}
	if len(files) > most || flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0 {
		closeAll(files)
		return zero, nil, errors.New("a message on the socket is too large")
	}
	if count == 0 && len(files) == 0 {
		return zero, nil, ErrGone
	}
	message, err := strictjson.Decode[T](data[:count])
	if err != nil {
		closeAll(files)
		return zero, nil, fmt.Errorf("a message on the socket cannot be read: %w", err)
	}
	return message, files, nil
}

// PeerUser returns the uid of the peer process in this process's user namespace.
func (c Conn) PeerUser() (uint32, error) {
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var errPeer error
	err = raw.Control(func(descriptor uintptr) {
		peer, errPeer = unix.GetsockoptUcred(int(descriptor), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, errPeer); err != nil {
		return 0, err
	}
	return peer.Uid, nil
}

// ParseRights returns the descriptors in control messages; on an error none stays open.
func ParseRights(control []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, fmt.Errorf("control message: %w", err)
	}
	var files []*os.File
	for _, message := range messages {
		descriptors, err := unix.ParseUnixRights(&message)
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("control message: %w", err)
		}
		for _, descriptor := range descriptors {
			unix.CloseOnExec(descriptor)
			files = append(files, os.NewFile(uintptr(descriptor), "received"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}

// DialUntil opens a connection. While the socket is absent or has no listener, the
// sidecar behind it is starting: DialUntil retries until the deadline.
func DialUntil(path string, deadline time.Time) (Conn, error) {
	for {
		conn, err := Dial(path, deadline)
		if err == nil {
			return conn, nil
		}
		starting := errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED)
		if !starting || time.Now().After(deadline) {
			return Conn{}, err
		}
		time.Sleep(dialPause)
	}
}
