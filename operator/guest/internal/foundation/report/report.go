// Package report is the protocol by which a container's launcher and checker report to `guest
// agent`: the launch, why it failed, and the state of the health check.
//
// There is one socket for each container, in a directory that no other container has, so
// that a container can report only itself. The processes and counters in the descriptors
// are only read; a root user of the container can at most forge its own reports, and gains
// no privilege by that.
package report

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/foundation/fdpass"
	"cloister.dev/guest/internal/foundation/pattern"
)

// SocketName is the name of the socket in a container's directory.
const SocketName = "report.sock"

// Kinds of messages.
const (
	// MessageLaunch: process 1 of the container is the launcher. The connection stays
	// open until the launcher executes the container's program, which closes it.
	MessageLaunch = "launch"
	// MessageFailed follows MessageLaunch on its connection: the launch failed.
	MessageFailed = "failed"
	// MessageHealth is the state of the health check, with the checker's token. The connection
	// stays open: further states follow on it, without a token and without a response.
	MessageHealth = "health"
)

// Names of the files that are sent with a message.
const (
	// Process is a descriptor of process 1, pidfd_open(2).
	Process = "process"
	// CPU, Memory, MemoryDetail and OOM are counters of the container's cgroup.
	CPU          = "cpu"
	Memory       = "memory"
	MemoryDetail = "memory-detail"
	OOM          = "oom"
)

// MaxFiles is the maximum number of files with one message.
const MaxFiles = 5

// counters are the files of a cgroup, of v2 and then of v1.
var counters = []struct {
	name  string
	paths []string
}{
	{CPU, []string{"/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpuacct/cpuacct.usage"}},
	{Memory, []string{"/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}},
	{MemoryDetail, []string{"/sys/fs/cgroup/memory.stat", "/sys/fs/cgroup/memory/memory.stat"}},
	{OOM, []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}},
}

const (
	responseAccepted = "heard"
	responseRefused  = "refused"
	conversation     = 5 * time.Second
	lastWord         = 2 * time.Second
)

// ErrRefused is returned if the agent refuses; the message has the reason.
var ErrRefused = errors.New("the enclave's agent refused")

// Message is one report.
type Message struct {
	// Kind is one of the Message constants.
	Kind string `json:"say"`
	// Files names the descriptors that are sent with the message, in their order.
	Files []string `json:"files,omitempty"`
	// ContainerID is the runtime's id of the container; empty where it does not show.
	ContainerID string `json:"containerID,omitempty"`
	// Error is why a launch failed, ExitCode the launcher's exit code.
	Error    string `json:"error,omitempty"`
	ExitCode int    `json:"exitCode,omitempty"`
	// CheckerDigest is the TokenDigest of the checker, in MessageLaunch; empty if there is none.
	CheckerDigest string `json:"checkerDigest,omitempty"`
	// Token is the checker's token, in the first MessageHealth of a connection.
	Token string `json:"token,omitempty"`
	// Health is set for MessageHealth.
	Health *HealthReport `json:"health,omitempty"`
}

// HealthReport is the state of a health check.
type HealthReport struct {
	// Status is starting, healthy or unhealthy.
	Status string `json:"status"`
	// FailingStreak is the number of consecutive failures that count.
	FailingStreak int `json:"failingStreak"`
	// LastStart, LastEnd and LastExitCode are those of the last check; nil before the first.
	LastStart    *time.Time `json:"lastStart,omitempty"`
	LastEnd      *time.Time `json:"lastEnd,omitempty"`
	LastExitCode *int       `json:"lastExitCode,omitempty"`
	// Output is the output of the last check.
	Output string `json:"output,omitempty"`
}

// Response is the agent's response to each message except MessageFailed.
type Response struct {
	// Kind is heard or refused.
	Kind string `json:"answer"`
	// Reason is why it was refused.
	Reason string `json:"reason,omitempty"`
}

// Accepted returns the response to an accepted message.
func Accepted() Response { return Response{Kind: responseAccepted} }

// Refused returns the response to a refused message.
func Refused(reason error) Response { return Response{Kind: responseRefused, Reason: reason.Error()} }

// Launch is the connection of one launch.
type Launch struct{ conn fdpass.Conn }

// BeginLaunch reports to the agent that process 1 of this container, the caller, is about to
// execute the container's program. The agent may be starting: BeginLaunch retries until the
// deadline and fails then, since an unreported container would make the enclave's status
// false.
//
// The checkerDigest is the TokenDigest of the container's checker; empty if it has none.
func BeginLaunch(socket, checkerDigest string, deadline time.Time) (*Launch, error) {
	for {
		conn, err := fdpass.DialUntil(socket, deadline)
		if err != nil {
			return nil, fmt.Errorf("the enclave's agent cannot be reached: %w", err)
		}
		err = send(conn, Message{Kind: MessageLaunch, ContainerID: containerID(), CheckerDigest: checkerDigest})
		if err == nil {
			return &Launch{conn}, nil
		}
		conn.Close()
		// Retry after a restart of the agent; a refusal is final.
		if errors.Is(err, ErrRefused) || time.Now().After(deadline) {
			return nil, err
		}
	}
}

// Failed reports why the launch failed and with which code the caller exits. Errors are
// ignored: the caller exits, which the agent observes.
func (l *Launch) Failed(failure error, exitCode int) {
	text := failure.Error()
	message := Message{Kind: MessageFailed, Error: strings.ToValidUTF8(text[:min(len(text), 2048)], "\uFFFD"), ExitCode: exitCode}
	_ = l.conn.SetDeadline(time.Now().Add(lastWord))
	_ = l.conn.Send(message)
	_ = l.conn.Close()
}

// TokenDigest is what the agent knows of a checker's token.
func TokenDigest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Checks is the connection of a container's checker to the agent.
type Checks struct {
	conn fdpass.Conn
	lost chan struct{}
}

// BeginChecks opens a connection and reports the state of the health check. It includes process
// 1, so that an agent that missed the launch learns of it.
func BeginChecks(socket, token string, health HealthReport) (*Checks, error) {
	conn, err := fdpass.Dial(socket, time.Now().Add(conversation))
	if err != nil {
		return nil, fmt.Errorf("the enclave's agent cannot be reached: %w", err)
	}
	err = send(conn, Message{Kind: MessageHealth, ContainerID: containerID(), Token: token, Health: &health})
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	made := &Checks{conn, make(chan struct{})}
	go func() {
		// The agent sends nothing more: what ends this read is the end of the connection.
		_, _, _ = fdpass.Receive[Response](conn)
		close(made.lost)
	}()
	return made, nil
}

// Lost is closed when the agent has closed the connection.
func (c *Checks) Lost() <-chan struct{} { return c.lost }

// Report reports the next state.
func (c *Checks) Report(health HealthReport) error {
	return c.conn.Send(Message{Kind: MessageHealth, Health: &health})
}

// Close closes the connection.
func (c *Checks) Close() { _ = c.conn.Close() }

// send sends a message with process 1 and the counters, and waits for the response.
func send(conn fdpass.Conn, message Message) error {
	files, err := openFiles(&message)
	if err != nil {
		return err
	}
	defer func() {
		for _, file := range files {
			file.Close()
		}
	}()
	if err := conn.Send(message, files...); err != nil {
		return fmt.Errorf("the report to the enclave's agent cannot be sent: %w", err)
	}
	response, _, err := fdpass.Receive[Response](conn)
	if err != nil {
		return fmt.Errorf("the enclave's agent did not respond: %w", err)
	}
	if response.Kind != responseAccepted {
		return fmt.Errorf("%w: %s", ErrRefused, response.Reason)
	}
	return nil
}

// openFiles opens process 1 and those counters that the runtime shows.
func openFiles(message *Message) ([]*os.File, error) {
	descriptor, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return nil, fmt.Errorf("process 1 cannot be opened: %w", err)
	}
	files := []*os.File{os.NewFile(uintptr(descriptor), Process)}
	message.Files = []string{Process}
	for _, counter := range counters {
		for _, path := range counter.paths {
			descriptor, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
			if err != nil {
				continue // this kernel or runtime does not show it
			}
			files = append(files, os.NewFile(uintptr(descriptor), counter.name))
			message.Files = append(message.Files, counter.name)
			break
		}
	}
	return files, nil
}

var idPattern = pattern.Lazy(`\b[0-9a-f]{64}\b`)

// containerID returns the runtime's id in the cgroups of process 1; empty where a cgroup
// namespace hides it.
func containerID() string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return FindID(string(text))
}

// FindID returns the id of a container in the text of /proc/PID/cgroup: the last path
// element that has the form of one, cgroups(7).
func FindID(text string) string {
	for _, line := range strings.Split(text, "\n") {
		if found := idPattern().FindAllString(line, -1); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return ""
}
