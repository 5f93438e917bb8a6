package shell

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const startTimeout = 30 * time.Second

// ErrRefused is returned if process 1 refuses to start a program.
var ErrRefused = errors.New("refused")

// Refusal is why a program was not started, with its exit code.
type Refusal struct {
	// Reason is human-readable.
	Reason string
	// Code is the exit code.
	Code int
}

// Error returns the reason.
func (r Refusal) Error() string { return r.Reason }

// Unwrap returns ErrRefused.
func (r Refusal) Unwrap() error { return ErrRefused }

// Program is the handle of `guest ssh` on a program that runs in a container.
type Program struct {
	// Input, Output and Errors are this side's ends of its streams; with a terminal Errors stays empty.
	Input, Output, Errors *os.File
	conn                  Conn
}

// Run requests process 1 behind a socket to start a program. The streams are pipes created
// on this side: no file of the tenant is ever read or written here.
func Run(socket string, start Start) (*Program, error) {
	request := Request{Kind: RequestStart, Start: &start}
	if err := request.Check(); err != nil {
		return nil, Refusal{Reason: err.Error(), Code: 1}
	}
	dialed, err := net.DialTimeout("unixpacket", socket, startTimeout)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, Refusal{Reason: "the container does not run; see its status and its log", Code: 1}
	}
	if err != nil {
		return nil, fmt.Errorf("the request to the container cannot be sent: %w", err)
	}
	packets, isUnix := dialed.(*net.UnixConn)
	if !isUnix {
		return nil, errors.New("not a Unix socket")
	}
	made := &Program{conn: NewConn(packets)}
	if err := made.begin(request); err != nil {
		made.Close()
		return nil, err
	}
	return made, nil
}

// begin creates the pipes, sends their far ends and waits for the response.
func (p *Program) begin(request Request) error {
	var near, far [streams]*os.File
	defer func() { CloseAll(far[:]) }()
	for index := range near {
		var err error
		if near[index], far[index], err = pipe(index == 0); err != nil {
			CloseAll(near[:])
			return err
		}
	}
	p.Input, p.Output, p.Errors = near[0], near[1], near[2]
	if err := p.conn.SetDeadline(time.Now().Add(startTimeout)); err != nil {
		return err
	}
	if err := p.conn.send(request, descriptor(far[0]), descriptor(far[1]), descriptor(far[2])); err != nil {
		return err
	}
	response, err := p.receive()
	if err != nil {
		return fmt.Errorf("the container did not respond: %w", err)
	}
	if response.Kind == ResponseRefused {
		return Refusal{Reason: response.Reason, Code: response.Code}
	}
	if response.Kind != ResponseStarted {
		return fmt.Errorf("the container responded %q", response.Kind)
	}
	return p.conn.SetDeadline(time.Time{})
}

func (p *Program) receive() (Response, error) {
	response, files, err := Receive[Response](p.conn)
	CloseAll(files)
	return response, err
}

// Signal sends a signal to the program, by its name without SIG.
func (p *Program) Signal(name string) error {
	request := Request{Kind: RequestSignal, Signal: name}
	if err := request.Check(); err != nil {
		return err
	}
	return p.conn.send(request)
}

// Resize changes the size of its terminal.
func (p *Program) Resize(size Size) error {
	request := Request{Kind: RequestSize, Size: &size}
	if err := request.Check(); err != nil {
		return err
	}
	return p.conn.send(request)
}

// Wait returns how the program exited.
func (p *Program) Wait() (Response, error) {
	response, err := p.receive()
	if err == nil && response.Kind != ResponseExited {
		err = fmt.Errorf("the container responded %q", response.Kind)
	}
	return response, err
}

// Close abandons the program: it gets SIGHUP if it still runs. A nil Program never ran.
func (p *Program) Close() {
	if p == nil {
		return
	}
	p.conn.Close()
	CloseAll([]*os.File{p.Input, p.Output, p.Errors})
}

// pipe creates a pipe that this side writes to or reads from. Only this side's end is
// non-blocking: a program expects blocking streams.
func pipe(write bool) (near, far *os.File, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	if write {
		ends[0], ends[1] = ends[1], ends[0]
	}
	err = unix.SetNonblock(ends[0], true)
	return os.NewFile(uintptr(ends[0]), "near"), os.NewFile(uintptr(ends[1]), "far"), err
}

// descriptor returns the number of a file without setting it to blocking mode.
func descriptor(file *os.File) int {
	number := -1
	if raw, err := file.SyscallConn(); err == nil {
		_ = raw.Control(func(one uintptr) { number = int(one) })
	}
	return number
}
