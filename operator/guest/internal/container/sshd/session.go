package sshd

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"cloister.dev/guest/internal/container/shell"
)

// drainTimeout is how long output is copied after a program has exited, for processes that it left behind.
const drainTimeout = 2 * time.Second

const sftpSubsystem = "sftp"

// Requests of a session and their payloads, RFC 4254, section 6.
type (
	ptyRequest struct {
		Terminal      string
		Columns, Rows uint32
		Width, Height uint32
		Modes         string
	}
	sizeRequest struct {
		Columns, Rows uint32
		Width, Height uint32
	}
	variableRequest struct{ Name, Value string }
	textRequest     struct{ Text string }
	exitStatus      struct{ Code uint32 }
	exitSignal      struct {
		Signal   string
		Core     bool
		Message  string
		Language string
	}
)

// session is one channel of a client.
type session struct {
	channel ssh.Channel
	socket  string
	// problem is why no program can be started; nil if there is none.
	problem error
	start   shell.Start
	// begun means that a program was requested, which is possible once.
	begun   bool
	program *shell.Program
}

// session serves one channel: requests until a program starts, then its streams.
func (s *server) session(user string, opened ssh.NewChannel, log *slog.Logger) {
	channel, requests, err := opened.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	made := &session{channel: channel}
	made.socket, made.problem = s.socketOf(user)
	ended := make(chan struct{})
	for {
		select {
		case <-ended:
			go ssh.DiscardRequests(requests)
			return
		case request, open := <-requests:
			if !open {
				made.program.Close()
				return
			}
			before := made.begun
			accepted := made.handle(request)
			if request.WantReply {
				// If the client is gone, the requests end.
				_ = request.Reply(accepted, nil)
			}
			if made.begun && !before {
				log.Info("session", "terminal", made.start.Terminal != nil, "files", made.start.Files, "started", made.problem == nil)
				go func() {
					defer close(ended)
					made.run()
				}()
			}
		}
	}
}

// handle handles a request and reports whether it is granted.
func (s *session) handle(request *ssh.Request) bool {
	switch request.Type {
	case "pty-req":
		var asked ptyRequest
		if s.begun || ssh.Unmarshal(request.Payload, &asked) != nil {
			return false
		}
		s.start.Terminal = &shell.Terminal{Name: asked.Terminal, Size: shell.Size{Columns: asked.Columns, Rows: asked.Rows}}
		return true
	case "env":
		var asked variableRequest
		if s.begun || ssh.Unmarshal(request.Payload, &asked) != nil || len(s.start.Environment) >= shell.MaxEnvironment || shell.CheckVariable(asked.Name, asked.Value) != nil {
			return false
		}
		s.start.Environment = append(s.start.Environment, asked.Name+"="+asked.Value)
		return true
	case "window-change":
		var asked sizeRequest
		return s.program != nil && ssh.Unmarshal(request.Payload, &asked) == nil &&
			s.program.Resize(shell.Size{Columns: asked.Columns, Rows: asked.Rows}) == nil
	case "signal":
		var asked textRequest
		return s.program != nil && ssh.Unmarshal(request.Payload, &asked) == nil && s.program.Signal(asked.Text) == nil
	case "shell", "exec", "subsystem":
		return !s.begun && s.begin(request)
	}
	return false // among others forwarding of agents and displays
}

// begin starts the program of a request. Errors are reported in the session's error stream
// and exit code.
func (s *session) begin(request *ssh.Request) bool {
	var asked textRequest
	if request.Type != "shell" && ssh.Unmarshal(request.Payload, &asked) != nil {
		return false
	}
	switch request.Type {
	case "exec":
		s.start.Command = asked.Text
	case "subsystem":
		if asked.Text != sftpSubsystem {
			return false
		}
		s.start.Files, s.start.Terminal = true, nil
	}
	s.begun = true
	if s.problem == nil {
		s.program, s.problem = shell.Run(s.socket, s.start)
	}
	return true
}

// run copies the program's streams until it has exited, and sends its exit status.
func (s *session) run() {
	if s.problem != nil {
		code := 1
		var refusal shell.Refusal
		if errors.As(s.problem, &refusal) && refusal.Code != 0 {
			code = refusal.Code
		}
		fmt.Fprintf(s.channel.Stderr(), "%s\r\n", s.problem)
		s.sendExit(shell.Response{Code: code})
		return
	}
	defer s.program.Close()
	go func() {
		// EOF of the client's stream is EOF of the program's input.
		_, _ = io.Copy(s.program.Input, s.channel)
		s.program.Input.Close()
	}()
	over := make(chan struct{})
	var outputs sync.WaitGroup
	for from, to := range map[*os.File]io.Writer{s.program.Output: s.channel, s.program.Errors: s.channel.Stderr()} {
		outputs.Go(func() { _, _ = io.Copy(to, drainReader{from, over}) })
	}
	response, err := s.program.Wait()
	close(over)
	for _, file := range []*os.File{s.program.Output, s.program.Errors} {
		_ = file.SetReadDeadline(time.Now().Add(drainTimeout)) // an error means that the file is closed
	}
	outputs.Wait()
	if err != nil {
		fmt.Fprintf(s.channel.Stderr(), "the container has terminated\r\n")
		response = shell.Response{Code: 1}
	}
	s.sendExit(response)
}

// sendExit sends the program's exit status; an error means that the client is gone.
func (s *session) sendExit(response shell.Response) {
	if response.Signal != "" {
		_, _ = s.channel.SendRequest("exit-signal", false, ssh.Marshal(exitSignal{Signal: response.Signal}))
		return
	}
	_, _ = s.channel.SendRequest("exit-status", false, ssh.Marshal(exitStatus{Code: uint32(response.Code)}))
}

// drainReader reads a program's output: after the program has exited, only as long as data
// arrives, so that processes that it left behind do not keep the session open.
type drainReader struct {
	file *os.File
	over <-chan struct{}
}

func (l drainReader) Read(data []byte) (int, error) {
	select {
	case <-l.over:
		if err := l.file.SetReadDeadline(time.Now().Add(drainTimeout)); err != nil {
			return 0, err
		}
	default:
	}
	return l.file.Read(data)
}
