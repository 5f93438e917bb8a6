package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/fdpass"
	"cloister.dev/guest/internal/fdstore"
	"cloister.dev/guest/internal/link"
	"cloister.dev/guest/internal/netattach"
	"cloister.dev/guest/internal/netns"
	"cloister.dev/guest/internal/netplan"
)

const (
	firstMessage = 5 * time.Second
	wholeWiring  = 60 * time.Second
)

// doors are the wiring sockets of all containers.
type sockets struct {
	document    netplan.Plan
	log         *slog.Logger
	listeners   map[string]*net.UnixListener
	attachments map[string]*attachment
	changed     chan struct{}
}

// room is one network namespace and what is known about it.
type attachment struct {
	namespace netplan.Namespace

	mutex sync.Mutex
	// inside is the adopted namespace, nil before and after a restart without keeper.
	inside *os.File
	state  string
}

// openDoors makes the sockets and takes over what a predecessor wired.
func openSockets(document netplan.Plan, log *slog.Logger) (*sockets, error) {
	made := &sockets{document: document, log: log, listeners: map[string]*net.UnixListener{},
		attachments: map[string]*attachment{}, changed: make(chan struct{}, 1)}
	kept := map[string]*os.File{}
	if document.KeeperSocket != "" {
		files, err := fdstore.Fetch(document.KeeperSocket, fdstore.Namespaces)
		if err != nil {
			log.Warn("the keeper has nothing to hand back", "error", err)
		}
		kept = files
	}
	for _, namespace := range document.Namespaces {
		one := &attachment{namespace: namespace, state: Waiting}
		switch connected := len(namespace.Attachments) > 0 && link.Wired(namespace); {
		case kept[namespace.Name] != nil && (connected || len(namespace.Attachments) == 0):
			one.inside, one.state = kept[namespace.Name], Wired
		case connected:
			one.state = Lost
		}
		for _, container := range namespace.Containers {
			made.attachments[container] = one
			listener, err := listen(filepath.Join(document.SocketDirectory, container))
			if err != nil {
				return nil, errors.Join(fmt.Errorf("container %s: %w", container, err), made.close())
			}
			made.listeners[container] = listener
		}
	}
	return made, nil
}

func listen(directory string) (*net.UnixListener, error) {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(directory, netattach.SocketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	// Only root may connect, from the first moment: a tenant of another user has no business here.
	previous := unix.Umask(0o177)
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	unix.Umask(previous)
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	return listener, nil
}

// serve answers at all sockets, one conversation at a time for each.
func (d *sockets) serve(ctx context.Context) error {
	failed := make(chan error, len(d.listeners))
	for container, listener := range d.listeners {
		go func() {
			for {
				socket, err := listener.AcceptUnix()
				if err != nil {
					if ctx.Err() == nil {
						failed <- fmt.Errorf("container %s: %w", container, err)
					}
					return
				}
				d.converse(container, fdpass.NewConn(socket))
			}
		}()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

func (d *sockets) close() error {
	var problems []error
	for _, listener := range d.listeners {
		problems = append(problems, listener.Close())
	}
	return errors.Join(problems...)
}

func (d *sockets) states() map[string]string {
	states := map[string]string{}
	for _, one := range d.attachments {
		one.mutex.Lock()
		states[one.namespace.Name] = one.state
		one.mutex.Unlock()
	}
	return states
}

// keepAgain hands all namespaces to the keeper, which may have been restarted.
func (d *sockets) keepAgain() {
	for _, one := range d.attachments {
		one.mutex.Lock()
		d.keep(one)
		one.mutex.Unlock()
	}
}

func (d *sockets) keep(one *attachment) {
	if d.document.KeeperSocket == "" || one.inside == nil {
		return
	}
	if err := fdstore.Put(d.document.KeeperSocket, fdstore.Namespaces+one.namespace.Name, one.inside); err != nil {
		d.log.Warn("the keeper does not take a namespace", "namespace", one.namespace.Name, "error", err)
	}
}

// converse handles one conversation and tells the other side why it was refused.
func (d *sockets) converse(container string, conn fdpass.Conn) {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(firstMessage)); err != nil {
		return
	}
	request, file, err := fdpass.Receive[netattach.Request](conn)
	if err == nil {
		err = d.handle(container, conn, request, file)
	}
	if file != nil {
		file.Close()
	}
	if err != nil {
		d.log.Warn("a launcher was refused", "container", container, "reason", err.Error())
		// The other side may have gone; the log has the reason.
		_ = conn.Send(netattach.Answer{Answer: netattach.AnswerRefused, Reason: err.Error()}, nil)
	}
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

func (d *sockets) handle(container string, conn fdpass.Conn, request netattach.Request, file *os.File) error {
	one := d.attachments[container]
	one.mutex.Lock()
	defer one.mutex.Unlock()
	switch {
	case request.Ask == netattach.AskNamespace && file == nil:
		return d.tell(one, conn)
	case request.Ask == netattach.AskWire && file != nil:
		return d.wire(one, conn, file)
	}
	return fmt.Errorf("the request %q is not understood", request.Ask)
}

func (d *sockets) tell(one *attachment, conn fdpass.Conn) error {
	if one.inside == nil {
		return errors.New("the container's network namespace is not known here")
	}
	return conn.Send(d.answer(one, netattach.AnswerJoin), one.inside)
}

// wire adopts a fresh namespace and connects it, or hands out the shared one.
func (d *sockets) wire(one *attachment, conn fdpass.Conn, file *os.File) error {
	if err := netns.Adopt(file); err != nil {
		return err
	}
	if one.namespace.Shared() && one.inside != nil {
		return conn.Send(d.answer(one, netattach.AnswerJoin), one.inside)
	}
	if one.namespace.Shared() && one.state == Lost {
		return errors.New("the shared network namespace was lost with the enclave's network and its keeper; relaunch the enclave")
	}
	if err := d.connect(one, conn, file); err != nil {
		one.state = Waiting
		return errors.Join(err, link.Detach(one.namespace))
	}
	return nil
}

func (d *sockets) connect(one *attachment, conn fdpass.Conn, file *os.File) error {
	if err := conn.SetDeadline(time.Now().Add(wholeWiring)); err != nil {
		return err
	}
	if _, err := link.Attach(d.document, one.namespace, file); err != nil {
		return err
	}
	if err := conn.Send(d.answer(one, netattach.AnswerConfigure), nil); err != nil {
		return err
	}
	request, extra, err := fdpass.Receive[netattach.Request](conn)
	if extra != nil {
		extra.Close()
	}
	if err != nil {
		return err
	}
	if request.Ask != netattach.AskWired || !link.Wired(one.namespace) {
		return errors.New("the launcher did not set its devices up")
	}
	duplicate, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if one.inside != nil {
		one.inside.Close()
	}
	one.inside, one.state = os.NewFile(uintptr(duplicate), one.namespace.Name), Wired
	d.keep(one)
	return conn.Send(netattach.Answer{Answer: netattach.AnswerReady}, nil)
}

func (d *sockets) answer(one *attachment, word string) netattach.Answer {
	answer := netattach.Answer{Answer: word, Interfaces: link.Describe(d.document, one.namespace)}
	if len(answer.Interfaces) > 0 {
		answer.Nameserver = netplan.Nameserver
	}
	return answer
}
