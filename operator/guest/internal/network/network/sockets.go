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

	"cloister.dev/guest/internal/foundation/fdpass"
	"cloister.dev/guest/internal/foundation/fdstore"
	"cloister.dev/guest/internal/network/link"
	"cloister.dev/guest/internal/network/netattach"
	"cloister.dev/guest/internal/network/netns"
	"cloister.dev/guest/internal/network/netplan"
)

const (
	requestTimeout = 5 * time.Second
	attachTimeout  = 60 * time.Second
)

// sockets are the sockets of all containers.
type sockets struct {
	plan       netplan.Plan
	log        *slog.Logger
	listeners  map[string]*net.UnixListener
	namespaces map[string]*namespaceState
	changed    chan struct{}
}

// namespaceState is one network namespace and its state.
type namespaceState struct {
	namespace netplan.Namespace

	mutex sync.Mutex
	// inside is the adopted namespace; nil before, and after a restart without fd store.
	inside *os.File
	state  string
}

// openSockets creates the sockets and adopts the namespaces that a predecessor attached.
func openSockets(plan netplan.Plan, log *slog.Logger) (*sockets, error) {
	made := &sockets{plan: plan, log: log, listeners: map[string]*net.UnixListener{},
		namespaces: map[string]*namespaceState{}, changed: make(chan struct{}, 1)}
	stored := map[string]*os.File{}
	if plan.FDStoreSocket != "" {
		files, err := fdstore.Fetch(plan.FDStoreSocket, fdstore.Namespaces)
		if err != nil {
			log.Warn("nothing can be fetched from the fd store", "error", err)
		}
		stored = files
	}
	for _, namespace := range plan.Namespaces {
		one := &namespaceState{namespace: namespace, state: Waiting}
		switch connected := len(namespace.Attachments) > 0 && link.IsAttached(namespace); {
		case stored[namespace.Name] != nil && (connected || len(namespace.Attachments) == 0):
			one.inside, one.state = stored[namespace.Name], Wired
		case connected:
			one.state = Lost
		}
		for _, container := range namespace.Containers {
			made.namespaces[container] = one
			listener, err := listen(filepath.Join(plan.SocketDirectory, container))
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
	// Only root may connect, from the first moment: tenants' programs with other users need not.
	previous := unix.Umask(0o177)
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	unix.Umask(previous)
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	return listener, nil
}

// serve serves all sockets, one connection at a time for each.
func (s *sockets) serve(ctx context.Context) error {
	failed := make(chan error, len(s.listeners))
	for container, listener := range s.listeners {
		go func() {
			for {
				socket, err := listener.AcceptUnix()
				if err != nil {
					if ctx.Err() == nil {
						failed <- fmt.Errorf("container %s: %w", container, err)
					}
					return
				}
				s.handleConn(container, fdpass.NewConn(socket))
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

func (s *sockets) close() error {
	var problems []error
	for _, listener := range s.listeners {
		problems = append(problems, listener.Close())
	}
	return errors.Join(problems...)
}

func (s *sockets) states() map[string]string {
	states := map[string]string{}
	for _, one := range s.namespaces {
		one.mutex.Lock()
		states[one.namespace.Name] = one.state
		one.mutex.Unlock()
	}
	return states
}

// storeAll sends all namespaces to the fd store, which may have been restarted.
func (s *sockets) storeAll() {
	for _, one := range s.namespaces {
		one.mutex.Lock()
		s.store(one)
		one.mutex.Unlock()
	}
}

func (s *sockets) store(one *namespaceState) {
	if s.plan.FDStoreSocket == "" || one.inside == nil {
		return
	}
	if err := fdstore.Store(s.plan.FDStoreSocket, fdstore.Namespaces+one.namespace.Name, one.inside); err != nil {
		s.log.Warn("the fd store does not accept a namespace", "namespace", one.namespace.Name, "error", err)
	}
}

// handleConn handles one connection, and sends the reason of a refusal.
func (s *sockets) handleConn(container string, conn fdpass.Conn) {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return
	}
	request, file, err := fdpass.Receive[netattach.Request](conn)
	if err == nil {
		err = s.handleRequest(container, conn, request, file)
	}
	if file != nil {
		file.Close()
	}
	if err != nil {
		s.log.Warn("a launcher was refused", "container", container, "reason", err.Error())
		// The peer may be gone; the log has the reason.
		_ = conn.Send(netattach.Response{Kind: netattach.ResponseRefused, Reason: err.Error()}, nil)
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *sockets) handleRequest(container string, conn fdpass.Conn, request netattach.Request, file *os.File) error {
	one := s.namespaces[container]
	one.mutex.Lock()
	defer one.mutex.Unlock()
	switch {
	case request.Kind == netattach.RequestAttach && file != nil:
		return s.attach(one, conn, file)
	}
	return fmt.Errorf("the request %q is not known", request.Kind)
}

// attach adopts a new namespace and connects it, or sends the shared one.
func (s *sockets) attach(one *namespaceState, conn fdpass.Conn, file *os.File) error {
	if err := netns.Adopt(file); err != nil {
		return err
	}
	if one.namespace.Shared() && one.inside != nil {
		return conn.Send(s.response(one, netattach.ResponseJoin), one.inside)
	}
	if one.namespace.Shared() && one.state == Lost {
		return errors.New("the shared network namespace was lost with the enclave's network and its fd store; relaunch the enclave")
	}
	if err := s.configure(one, conn, file); err != nil {
		one.state = Waiting
		return errors.Join(err, link.Detach(one.namespace))
	}
	return nil
}

func (s *sockets) configure(one *namespaceState, conn fdpass.Conn, file *os.File) error {
	if err := conn.SetDeadline(time.Now().Add(attachTimeout)); err != nil {
		return err
	}
	if _, err := link.Attach(s.plan, one.namespace, file); err != nil {
		return err
	}
	if err := conn.Send(s.response(one, netattach.ResponseConfigure), nil); err != nil {
		return err
	}
	request, extra, err := fdpass.Receive[netattach.Request](conn)
	if extra != nil {
		extra.Close()
	}
	if err != nil {
		return err
	}
	if request.Kind != netattach.RequestAttached || !link.IsAttached(one.namespace) {
		return errors.New("the launcher did not configure its devices")
	}
	duplicate, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if one.inside != nil {
		one.inside.Close()
	}
	one.inside, one.state = os.NewFile(uintptr(duplicate), one.namespace.Name), Wired
	s.store(one)
	return conn.Send(netattach.Response{Kind: netattach.ResponseReady}, nil)
}

func (s *sockets) response(one *namespaceState, word string) netattach.Response {
	response := netattach.Response{Kind: word, Interfaces: link.Describe(s.plan, one.namespace)}
	if len(response.Interfaces) > 0 {
		response.Nameserver = netplan.Nameserver
	}
	return response
}
