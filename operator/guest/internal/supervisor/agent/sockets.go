package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/foundation/fdpass"
	"cloister.dev/guest/internal/foundation/pattern"
	"cloister.dev/guest/internal/foundation/report"
)

const (
	requestTimeout = 5 * time.Second
	// maxConns is the number of connections of one container at a time.
	maxConns  = 8
	maxError  = 2048
	maxOutput = 4096
)

// fileNames are the names of the files that an instance may have.
var fileNames = []string{report.Process, report.CPU, report.Memory, report.MemoryDetail, report.OOM}

var idPattern = pattern.Lazy(`^[0-9a-f]{64}$`)

// listen creates the report socket of a container.
func (a *agent) listen(name string) (*net.UnixListener, error) {
	directory := filepath.Join(a.spec.SocketDirectory, name)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, err
	}
	return listenAt(filepath.Join(directory, report.SocketName), "unixpacket", 0o111)
}

// listenAt replaces a socket; the umask applies from the first moment.
func listenAt(path, kind string, mask int) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	previous := unix.Umask(mask)
	listener, err := net.ListenUnix(kind, &net.UnixAddr{Name: path, Net: kind})
	unix.Umask(previous)
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	return listener, nil
}

// serveReports serves one container's socket.
func (a *agent) serveReports(ctx context.Context, about Container, listener *net.UnixListener) error {
	talks := make(chan struct{}, maxConns)
	for {
		socket, err := listener.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("container %s: %w", about.Name, err)
		}
		select {
		case talks <- struct{}{}:
		default:
			socket.Close() // too many of its own connections
			continue
		}
		go func() {
			defer func() { <-talks }()
			a.handleConn(about, fdpass.NewConn(socket))
		}()
	}
}

// handleConn handles one connection. Launchers are root of the Pod, as a tenant's program is only
// if its image or the file says so; a checker has the program's user and proves itself by a token.
func (a *agent) handleConn(about Container, conn fdpass.Conn) {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return
	}
	message, files, err := fdpass.ReceiveAll[report.Message](conn, report.MaxFiles)
	if err != nil {
		return
	}
	opened, err := newHandles(message.Files, files)
	if user, errUser := conn.PeerUser(); message.Kind != report.MessageHealth && (errUser != nil || user != 0) {
		err = errors.New("only the container's launcher and checker report")
	}
	if err != nil {
		for _, file := range files {
			file.Close()
		}
		_ = conn.Send(report.Refused(err))
		return
	}
	one := &instance{handles: opened}
	begun, err := a.handleMessage(about, message, one)
	if err != nil {
		opened.close()
		_ = conn.Send(report.Refused(err))
		return
	}
	a.signal()
	_ = conn.Send(report.Accepted())
	if message.Kind == report.MessageLaunch {
		a.awaitLaunch(about.Name, conn, one)
	}
	if begun {
		a.store(about.Name, one)
		go a.watch(about.Name, one)
	} else {
		opened.close()
	}
	if message.Kind == report.MessageHealth {
		a.followChecks(about, conn)
	}
}

// handleMessage records the first message of a connection. It reports whether the
// instance that was sent with it is new and must be watched.
func (a *agent) handleMessage(about Container, message report.Message, one *instance) (bool, error) {
	id := message.ContainerID
	if !idPattern().MatchString(id) {
		id = ""
	}
	process, now := one.handles.identity(), time.Now().UTC()
	a.mutex.Lock()
	defer a.mutex.Unlock()
	known, present := a.state.Containers[about.Name], a.instances[about.Name]
	alive := present != nil && !present.handles.ended(0)
	same := alive && process == present.handles.identity()
	switch message.Kind {
	case report.MessageLaunch:
		if alive {
			return false, errors.New("the container is already running")
		}
		known.launch(process, id, now)
		known.CheckerDigest = message.CheckerDigest
	case report.MessageHealth:
		if !known.isChecker(message.Token) {
			return false, errors.New("only the checker that the container's launcher started reports its health")
		}
		if err := checkHealth(about, message.Health); err != nil {
			return false, err
		}
		if alive && !same {
			return false, errors.New("another process is the container's process 1")
		}
		if !alive && one.handles.ended(0) {
			return false, errors.New("the container has exited")
		}
		if !alive {
			known.adopt(process, id, now)
		}
		known.check(*message.Health, now)
		if alive {
			return false, nil
		}
	default:
		return false, fmt.Errorf("%q cannot be the first message", message.Kind)
	}
	a.instances[about.Name] = one
	return true, nil
}

// awaitLaunch waits until the launcher has become the program, which closes the
// connection, or has reported why it could not.
func (a *agent) awaitLaunch(name string, conn fdpass.Conn, one *instance) {
	_ = conn.SetDeadline(time.Time{})
	message, files, err := fdpass.ReceiveAll[report.Message](conn, 0)
	for _, file := range files {
		file.Close()
	}
	now := time.Now().UTC()
	a.mutex.Lock()
	known := a.state.Containers[name]
	if a.instances[name] == one {
		if err == nil && message.Kind == report.MessageFailed {
			text := strings.ToValidUTF8(message.Error[:min(len(message.Error), maxError)], "\uFFFD")
			known.fail(text, message.ExitCode)
		} else {
			known.start(now)
		}
	}
	a.mutex.Unlock()
	_ = conn.Close()
	a.signal()
}

// followChecks records the states that a checker sends after its first message, until its
// connection ends.
func (a *agent) followChecks(about Container, conn fdpass.Conn) {
	_ = conn.SetDeadline(time.Time{})
	a.mutex.Lock()
	one := a.instances[about.Name]
	a.mutex.Unlock()
	for {
		message, files, err := fdpass.ReceiveAll[report.Message](conn, 0)
		for _, file := range files {
			file.Close()
		}
		if err != nil || message.Kind != report.MessageHealth || checkHealth(about, message.Health) != nil {
			return
		}
		a.mutex.Lock()
		present := a.instances[about.Name]
		if present == one {
			a.state.Containers[about.Name].check(*message.Health, time.Now().UTC())
		}
		a.mutex.Unlock()
		if present != one {
			return
		}
		a.signal()
	}
}

func checkHealth(about Container, health *report.HealthReport) error {
	if !about.checked() || health == nil {
		return errors.New("there is no health check to report")
	}
	known := health.Status == healthStarting || health.Status == healthHealthy || health.Status == healthUnhealthy
	if !known || health.FailingStreak < 0 || len(health.Output) > maxOutput+64 {
		return errors.New("the health check's state cannot be read")
	}
	return nil
}
