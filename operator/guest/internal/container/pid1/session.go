package pid1

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/account"
	"cloister.dev/guest/internal/container/containerspec"
	"cloister.dev/guest/internal/container/launch"
	"cloister.dev/guest/internal/container/shell"
	"cloister.dev/guest/internal/foundation/entrypoint"
)

// SFTPCommand is the guest's command that serves the container's files.
const SFTPCommand = "files"

const (
	firstMessage = 30 * time.Second
	usualShell   = "/bin/sh"
)

// server starts shells in this container.
type server struct {
	container containerspec.Spec
	children  *children
}

// startSpec is a resolved program to start.
type startSpec struct {
	file        string
	arguments   []string
	environment []string
}

// session is one program that a client started.
type session struct {
	process int
	ended   <-chan syscall.WaitStatus
	// terminal is the master side; nil without one.
	terminal *os.File
}

// handleConn serves one connection: it starts the requested program and reports its exit.
func (s *server) handleConn(socket *net.UnixConn) {
	conn := shell.NewConn(socket)
	defer conn.Close()
	started, err := s.begin(conn)
	if err != nil {
		refusal := shell.Response{Kind: shell.ResponseRefused, Reason: err.Error(), Code: codeOf(err)}
		// If the peer is gone, it does not need the reason.
		_ = conn.Respond(refusal)
		return
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		started.handleRequests(conn)
	}()
	if err := conn.Respond(shell.Response{Kind: shell.ResponseStarted}); err != nil {
		started.signal(unix.SIGHUP)
	}
	select {
	case status := <-started.ended:
		_ = conn.Respond(exitResponse(status))
	case <-gone:
		started.signal(unix.SIGHUP)
		if started.terminal != nil {
			started.terminal.Close()
		}
	}
}

// begin receives the first message and starts the requested program.
func (s *server) begin(conn shell.Conn) (*session, error) {
	if err := conn.SetDeadline(time.Now().Add(firstMessage)); err != nil {
		return nil, err
	}
	// Read before anything is refused: closing with unread data would discard the refusal.
	request, files, err := shell.Receive[shell.Request](conn)
	if err != nil {
		return nil, err
	}
	if err := s.check(conn, request, len(files)); err != nil {
		shell.CloseAll(files)
		return nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		shell.CloseAll(files)
		return nil, err
	}
	return s.start(*request.Start, files)
}

// check returns an error if the first message is not permitted.
func (s *server) check(conn shell.Conn, request shell.Request, files int) error {
	peer, err := conn.Peer()
	if err != nil {
		return err
	}
	if peer != s.container.Shells.Client {
		return fmt.Errorf("user %d may not start shells", peer)
	}
	if request.Start == nil || files != 3 {
		return errors.New("the first message must start a program on three files")
	}
	return request.Check()
}

// start starts a program. It takes ownership of the files.
func (s *server) start(start shell.Start, files []*os.File) (*session, error) {
	ready, err := s.startSpecOf(start)
	if err != nil {
		shell.CloseAll(files)
		return nil, err
	}
	made := &session{}
	attributes := &syscall.ProcAttr{Dir: s.container.Directory(), Env: ready.environment, Sys: &syscall.SysProcAttr{Setsid: true}}
	if start.Terminal == nil {
		defer shell.CloseAll(files)
		attributes.Files = []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd()}
		made.process, made.ended, err = s.children.start(ready.file, ready.arguments, attributes)
		return made, wrap(ready.file, err)
	}
	held, used, err := openTerminal(start.Terminal.Size)
	if err != nil {
		shell.CloseAll(files)
		return nil, err
	}
	defer used.Close()
	attributes.Files = []uintptr{used.Fd(), used.Fd(), used.Fd()}
	attributes.Sys.Setctty = true
	made.process, made.ended, err = s.children.start(ready.file, ready.arguments, attributes)
	if err != nil {
		held.Close()
		shell.CloseAll(files)
		return nil, wrap(ready.file, err)
	}
	made.terminal = held
	made.relay(files)
	return made, nil
}

// relay copies between the streams and the terminal, and takes ownership of the streams.
// The exit of the program hangs up the terminal; its remaining output is read first.
func (s *session) relay(files []*os.File) {
	files[2].Close()
	go func() {
		defer files[0].Close()
		_, _ = io.Copy(s.terminal, files[0]) // until either side is closed
	}()
	go func() {
		defer s.terminal.Close()
		defer files[1].Close()
		_, _ = io.Copy(files[1], s.terminal) // a terminal without programs reads as an error
	}()
}

// handleRequests handles requests until the peer is gone or sends an invalid one.
func (s *session) handleRequests(conn shell.Conn) {
	for {
		request, files, err := shell.Receive[shell.Request](conn)
		shell.CloseAll(files)
		if err != nil || request.Check() != nil {
			return
		}
		switch {
		case request.Kind == shell.RequestSize && s.terminal != nil:
			_ = resize(s.terminal, *request.Size)
		case request.Kind == shell.RequestSignal:
			if number, err := containerspec.ParseSignal(request.Signal); err == nil {
				s.signal(number)
			}
		}
	}
}

// signal sends a signal to the program's process group; an error means that it has exited.
func (s *session) signal(number syscall.Signal) { _ = unix.Kill(-s.process, number) }

// startSpecOf resolves what a request starts: with the image's environment, as the
// container's user, with the shell in the image's passwd.
func (s *server) startSpecOf(start shell.Start) (startSpec, error) {
	user, err := launch.ResolveUser(s.container)
	if err != nil {
		return startSpec{}, err
	}
	made := startSpec{environment: environment(os.Environ(), user, start)}
	if start.Files {
		file, err := os.Executable()
		if err != nil {
			return startSpec{}, err
		}
		made.file, made.arguments = file, []string{"guest", SFTPCommand, "-directory", s.container.Directory()}
		return made, nil
	}
	login := shellOf(user)
	switch {
	case login != "" && start.Command != "":
		made.file, made.arguments = login, []string{filepath.Base(login), "-c", start.Command}
	case login != "":
		made.file, made.arguments = login, []string{"-" + filepath.Base(login)}
	case strings.TrimSpace(start.Command) == "":
		return startSpec{}, fmt.Errorf("%w: the image has no shell; name a program of the image and its arguments after the host, such as ssh … /app --version", entrypoint.ErrNotFound)
	default:
		// Without a shell, quotes and variables are not interpreted: the words are taken literally.
		made.arguments = strings.Fields(start.Command)
		search, _ := entrypoint.Value(made.environment, "PATH")
		made.file, err = entrypoint.Find(made.arguments[0], search)
	}
	return made, err
}

// shellOf returns the user's shell, else /bin/sh; empty if the image has neither.
func shellOf(user account.User) string {
	for _, candidate := range []string{user.Shell, usualShell} {
		if filepath.IsAbs(candidate) && unix.Access(candidate, unix.X_OK) == nil {
			return candidate
		}
	}
	return ""
}

// environment returns the container's environment, with the variables of a login and those of the client.
func environment(present []string, user account.User, start shell.Start) []string {
	if login := shellOf(user); login != "" {
		present = entrypoint.WithValue(present, "SHELL", login)
	}
	if user.Name != "" {
		present = entrypoint.WithValue(entrypoint.WithValue(present, "USER", user.Name), "LOGNAME", user.Name)
	}
	if start.Terminal != nil && start.Terminal.Name != "" {
		present = entrypoint.WithValue(present, "TERM", start.Terminal.Name)
	}
	for _, entry := range start.Environment {
		name, value, _ := strings.Cut(entry, "=")
		present = entrypoint.WithValue(present, name, value)
	}
	return present
}

func wrap(file string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%q: %w: %w", file, entrypoint.ErrNotExecutable, err)
}

func codeOf(err error) int {
	switch {
	case errors.Is(err, entrypoint.ErrNotFound):
		return entrypoint.ExitNotFound
	case errors.Is(err, entrypoint.ErrNotExecutable):
		return entrypoint.ExitNotExecutable
	}
	return 1
}

func exitResponse(status syscall.WaitStatus) shell.Response {
	response := shell.Response{Kind: shell.ResponseExited}
	if status.Signaled() {
		response.Signal = strings.TrimPrefix(unix.SignalName(status.Signal()), "SIG")
		if response.Signal == "" {
			response.Code = exitCode(status) // a real-time signal has no name
		}
		return response
	}
	response.Code = status.ExitStatus()
	return response
}
