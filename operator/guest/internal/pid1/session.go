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

	"cloister.dev/guest/internal/account"
	"cloister.dev/guest/internal/containerspec"
	"cloister.dev/guest/internal/entrypoint"
	"cloister.dev/guest/internal/launch"
	"cloister.dev/guest/internal/shell"
)

// SFTPCommand is the guest's command that serves the container's files.
const SFTPCommand = "files"

const (
	firstMessage = 30 * time.Second
	usualShell   = "/bin/sh"
)

// server opens shells in this container.
type server struct {
	container containerspec.Spec
	children  *children
}

// startSpec is what to start, ready to be started.
type startSpec struct {
	file        string
	arguments   []string
	environment []string
}

// session is one program that somebody started.
type session struct {
	process int
	ended   <-chan syscall.WaitStatus
	// terminal is the held side; nil without one.
	terminal *os.File
}

// handleConn serves one conversation: it starts what is asked for and tells how it ended.
func (s *server) handleConn(socket *net.UnixConn) {
	conn := shell.NewConn(socket)
	defer conn.Close()
	started, err := s.begin(conn)
	if err != nil {
		refusal := shell.Response{Kind: shell.ResponseRefused, Reason: err.Error(), Code: codeOf(err)}
		// The other side may have gone, and then nobody needs the reason.
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

// begin receives the first message and starts what it asks for.
func (s *server) begin(conn shell.Conn) (*session, error) {
	if err := conn.SetDeadline(time.Now().Add(firstMessage)); err != nil {
		return nil, err
	}
	// Read before anything is refused: what is left unread would take the refusal with it.
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

// check says why a first message is not carried out.
func (s *server) check(conn shell.Conn, request shell.Request, files int) error {
	peer, err := conn.Peer()
	if err != nil {
		return err
	}
	if peer != s.container.Shells.Client {
		return fmt.Errorf("user %d may not ask for shells", peer)
	}
	if request.Start == nil || files != 3 {
		return errors.New("the first message must start a program on three files")
	}
	return request.Check()
}

// start starts a program. It takes the files over.
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

// relay passes bytes between the streams and the terminal, and takes the streams
// over. The end of the program hangs the terminal up; what it wrote before is read first.
func (s *session) relay(files []*os.File) {
	files[2].Close()
	go func() {
		defer files[0].Close()
		_, _ = io.Copy(s.terminal, files[0]) // until either side ends
	}()
	go func() {
		defer s.terminal.Close()
		defer files[1].Close()
		_, _ = io.Copy(files[1], s.terminal) // a terminal without programs reads as an error
	}()
}

// handleRequests carries requests out until the other side has gone or is not understood.
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

// signal sends a signal to the program and what it started; one that has ended needs none.
func (s *session) signal(number syscall.Signal) { _ = unix.Kill(-s.process, number) }

// startSpecOf decides what a request starts: with the image's environment, as the
// container's user, whose shell the image's passwd names.
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
		// Without a shell nothing gives quotes or variables a meaning: the words are taken as they stand.
		made.arguments = strings.Fields(start.Command)
		search, _ := entrypoint.Value(made.environment, "PATH")
		made.file, err = entrypoint.Find(made.arguments[0], search)
	}
	return made, err
}

// shellOf is the user's shell, else the usual one; empty when the image has neither.
func shellOf(user account.User) string {
	for _, candidate := range []string{user.Shell, usualShell} {
		if filepath.IsAbs(candidate) && unix.Access(candidate, unix.X_OK) == nil {
			return candidate
		}
	}
	return ""
}

// environment is the container's, with what a login adds and what the client asked for.
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
	answer := shell.Response{Kind: shell.ResponseExited}
	if status.Signaled() {
		answer.Signal = strings.TrimPrefix(unix.SignalName(status.Signal()), "SIG")
		if answer.Signal == "" {
			answer.Code = exitCode(status) // a real-time signal has no name
		}
		return answer
	}
	answer.Code = status.ExitStatus()
	return answer
}
