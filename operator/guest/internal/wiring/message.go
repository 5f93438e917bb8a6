// Package wiring is the conversation between a container's launcher and
// `guest net`: one socket for each container, one JSON document for each
// message, a namespace as a descriptor beside it.
//
// There is no secret in it. Which container asks is known from the socket, and a
// namespace is accepted only when it proves to be a new one of this Pod, so that
// whoever reaches the socket later has nothing to offer.
package wiring

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/strict"
)

// SocketName is the name of the socket in a container's wiring directory.
const SocketName = "wiring.sock"

// What a launcher or probe asks for.
const (
	// AskWire hands over a fresh namespace and asks for its wiring.
	AskWire = "wire"
	// AskWired says that the wiring given is set up.
	AskWired = "wired"
	// AskNamespace asks for the namespace of the container that runs.
	AskNamespace = "namespace"
)

// What `guest net` answers.
const (
	// AnswerConfigure: set up these interfaces in the namespace handed over.
	AnswerConfigure = "configure"
	// AnswerJoin: enter the namespace that comes with the answer instead.
	AnswerJoin = "join"
	// AnswerReady: the wiring is in force.
	AnswerReady = "ready"
	// AnswerRefused: see Reason.
	AnswerRefused = "refused"
)

const maxMessage = 64 << 10

// ErrRefused is returned when `guest net` refuses; the message says why.
var ErrRefused = errors.New("the enclave's network refused")

// ErrGone is returned when the other side has closed the conversation.
var ErrGone = errors.New("the other side of the socket has gone")

// Request is what a launcher or probe sends.
type Request struct {
	// Ask is one of the Ask words.
	Ask string `json:"ask"`
}

// Interface is one device of a container, made by `guest net`, set up by the launcher.
type Interface struct {
	// Name is the device's name inside.
	Name string `json:"name"`
	// Address is the address with the length of the network.
	Address netip.Prefix `json:"address"`
	// Gateway is the Pod's address on the network.
	Gateway netip.Addr `json:"gateway"`
	// Default tells that the way to the internet leads through this device.
	Default bool `json:"default"`
}

// Answer is what `guest net` sends.
type Answer struct {
	// Answer is one of the Answer words.
	Answer string `json:"answer"`
	// Reason tells why it refused.
	Reason string `json:"reason,omitempty"`
	// Interfaces are the devices to set up; none for a container without network.
	Interfaces []Interface `json:"interfaces,omitempty"`
	// Nameserver answers names; absent for a container without network.
	Nameserver netip.Addr `json:"nameserver,omitzero"`
}

// Conn is one conversation.
type Conn struct{ socket *net.UnixConn }

// NewConn wraps an accepted connection.
func NewConn(socket *net.UnixConn) Conn { return Conn{socket} }

// Dial opens a conversation; all of it must end by the deadline.
func Dial(path string, deadline time.Time) (Conn, error) {
	dialer := net.Dialer{Deadline: deadline}
	socket, err := dialer.Dial("unixpacket", path)
	if err != nil {
		return Conn{}, err
	}
	unixSocket, isUnix := socket.(*net.UnixConn)
	if !isUnix {
		return Conn{}, errors.New("not a local socket")
	}
	return Conn{unixSocket}, unixSocket.SetDeadline(deadline)
}

// Close ends the conversation.
func (c Conn) Close() error { return c.socket.Close() }

// SetDeadline bounds the next reads and writes.
func (c Conn) SetDeadline(deadline time.Time) error { return c.socket.SetDeadline(deadline) }

// Send writes a request or an answer, with files beside it; those that are nil are left out.
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

// Receive reads one message of type T and at most one file that came with it,
// nil when none came. The caller closes the file.
func Receive[T any](c Conn) (T, *os.File, error) {
	message, files, err := ReceiveAll[T](c, 1)
	if err != nil || len(files) == 0 {
		return message, nil, err
	}
	return message, files[0], nil
}

// ReceiveAll reads one message of type T and the files that came with it, at most
// so many. The caller closes them; on an error none stays open.
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
		return zero, nil, errors.New("a message of the wiring socket is too large")
	}
	if count == 0 && len(files) == 0 {
		return zero, nil, ErrGone
	}
	message, err := strict.Decode[T](data[:count])
	if err != nil {
		closeAll(files)
		return zero, nil, fmt.Errorf("a message of the wiring socket cannot be read: %w", err)
	}
	return message, files, nil
}

// PeerUser is the user of the process at the other end, as this process's user
// namespace counts.
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

// ParseRights takes the descriptors out of control messages; on an error none stays open.
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
