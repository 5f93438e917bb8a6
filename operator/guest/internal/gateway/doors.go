package gateway

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

	"cloister.dev/guest/internal/keep"
	"cloister.dev/guest/internal/link"
	"cloister.dev/guest/internal/netns"
	"cloister.dev/guest/internal/plan"
	"cloister.dev/guest/internal/wiring"
)

const (
	firstMessage = 5 * time.Second
	wholeWiring  = 60 * time.Second
)

// doors are the wiring sockets of all containers.
type doors struct {
	document  plan.Plan
	log       *slog.Logger
	listeners map[string]*net.UnixListener
	rooms     map[string]*room
	changed   chan struct{}
}

// room is one network namespace and what is known about it.
type room struct {
	namespace plan.Namespace

	mutex sync.Mutex
	// inside is the adopted namespace, nil before and after a restart without keeper.
	inside *os.File
	state  string
}

// openDoors makes the sockets and takes over what a predecessor wired.
func openDoors(document plan.Plan, log *slog.Logger) (*doors, error) {
	made := &doors{document: document, log: log, listeners: map[string]*net.UnixListener{},
		rooms: map[string]*room{}, changed: make(chan struct{}, 1)}
	kept := map[string]*os.File{}
	if document.KeeperSocket != "" {
		files, err := keep.Fetch(document.KeeperSocket, keep.Namespaces)
		if err != nil {
			log.Warn("the keeper has nothing to hand back", "error", err)
		}
		kept = files
	}
	for _, namespace := range document.Namespaces {
		one := &room{namespace: namespace, state: Waiting}
		switch connected := len(namespace.Attachments) > 0 && link.Wired(namespace); {
		case kept[namespace.Name] != nil && (connected || len(namespace.Attachments) == 0):
			one.inside, one.state = kept[namespace.Name], Wired
		case connected:
			one.state = Lost
		}
		for _, container := range namespace.Containers {
			made.rooms[container] = one
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
	path := filepath.Join(directory, wiring.SocketName)
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
func (d *doors) serve(ctx context.Context) error {
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
				d.converse(container, wiring.NewConn(socket))
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

func (d *doors) close() error {
	var problems []error
	for _, listener := range d.listeners {
		problems = append(problems, listener.Close())
	}
	return errors.Join(problems...)
}

func (d *doors) states() map[string]string {
	states := map[string]string{}
	for _, one := range d.rooms {
		one.mutex.Lock()
		states[one.namespace.Name] = one.state
		one.mutex.Unlock()
	}
	return states
}

// keepAgain hands all namespaces to the keeper, which may have been restarted.
func (d *doors) keepAgain() {
	for _, one := range d.rooms {
		one.mutex.Lock()
		d.keep(one)
		one.mutex.Unlock()
	}
}

func (d *doors) keep(one *room) {
	if d.document.KeeperSocket == "" || one.inside == nil {
		return
	}
	if err := keep.Put(d.document.KeeperSocket, keep.Namespaces+one.namespace.Name, one.inside); err != nil {
		d.log.Warn("the keeper does not take a namespace", "namespace", one.namespace.Name, "error", err)
	}
}

// converse handles one conversation and tells the other side why it was refused.
func (d *doors) converse(container string, conn wiring.Conn) {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(firstMessage)); err != nil {
		return
	}
	request, file, err := wiring.Receive[wiring.Request](conn)
	if err == nil {
		err = d.handle(container, conn, request, file)
	}
	if file != nil {
		file.Close()
	}
	if err != nil {
		d.log.Warn("a launcher was refused", "container", container, "reason", err.Error())
		// The other side may have gone; the log has the reason.
		_ = conn.Send(wiring.Answer{Answer: wiring.AnswerRefused, Reason: err.Error()}, nil)
	}
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

func (d *doors) handle(container string, conn wiring.Conn, request wiring.Request, file *os.File) error {
	one := d.rooms[container]
	one.mutex.Lock()
	defer one.mutex.Unlock()
	switch {
	case request.Ask == wiring.AskNamespace && file == nil:
		return d.tell(one, conn)
	case request.Ask == wiring.AskWire && file != nil:
		return d.wire(one, conn, file)
	}
	return fmt.Errorf("the request %q is not understood", request.Ask)
}

func (d *doors) tell(one *room, conn wiring.Conn) error {
	if one.inside == nil {
		return errors.New("the container's network namespace is not known here")
	}
	return conn.Send(d.answer(one, wiring.AnswerJoin), one.inside)
}

// wire adopts a fresh namespace and connects it, or hands out the shared one.
func (d *doors) wire(one *room, conn wiring.Conn, file *os.File) error {
	if err := netns.Adopt(file); err != nil {
		return err
	}
	if one.namespace.Shared() && one.inside != nil {
		return conn.Send(d.answer(one, wiring.AnswerJoin), one.inside)
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

func (d *doors) connect(one *room, conn wiring.Conn, file *os.File) error {
	if err := conn.SetDeadline(time.Now().Add(wholeWiring)); err != nil {
		return err
	}
	if _, err := link.Attach(d.document, one.namespace, file); err != nil {
		return err
	}
	if err := conn.Send(d.answer(one, wiring.AnswerConfigure), nil); err != nil {
		return err
	}
	request, extra, err := wiring.Receive[wiring.Request](conn)
	if extra != nil {
		extra.Close()
	}
	if err != nil {
		return err
	}
	if request.Ask != wiring.AskWired || !link.Wired(one.namespace) {
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
	return conn.Send(wiring.Answer{Answer: wiring.AnswerReady}, nil)
}

func (d *doors) answer(one *room, word string) wiring.Answer {
	answer := wiring.Answer{Answer: word, Interfaces: link.Describe(d.document, one.namespace)}
	if len(answer.Interfaces) > 0 {
		answer.Nameserver = plan.Nameserver
	}
	return answer
}
