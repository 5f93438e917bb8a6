// Package report is what a container's launcher and probe tell `guest agent`: that
// the container starts, why it could not, and how its health check went.
//
// There is one socket for each container, in a directory that no other container
// has, so that a container can speak of itself alone. The processes and counters
// that come as descriptors are looked at and never acted upon; whoever is root in
// the container can at most lie about it, and gains no right by that.
package report

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/fdpass"
)

// SocketName is the name of the socket in a container's directory.
const SocketName = "report.sock"

// What is told.
const (
	// SayLaunch: process 1 of the container is the launcher. The conversation stays
	// open until the launcher becomes the container's program, which closes it.
	MessageLaunch = "launch"
	// SayFailed ends a conversation that began with SayLaunch: the launch failed.
	MessageFailed = "failed"
	// SayHealth is the state of the health check.
	MessageHealth = "health"
)

// Names of the files beside a message.
const (
	// Process is a descriptor of process 1, pidfd_open(2).
	Process = "process"
	// CPU, Memory, MemoryDetail and OOM are counters of the container's control group.
	CPU          = "cpu"
	Memory       = "memory"
	MemoryDetail = "memory-detail"
	OOM          = "oom"
)

// MaxFiles is the number of files that may come with one message.
const MaxFiles = 5

// counters are the files of a control group, of version 2 and then of version 1.
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

// ErrRefused is returned when the agent refuses; the message says why.
var ErrRefused = errors.New("the enclave's agent refused")

// Message is what is told.
type Message struct {
	// Say is one of the Say words.
	Kind string `json:"say"`
	// Files names the descriptors beside the message, in their order.
	Files []string `json:"files,omitempty"`
	// ContainerID is the runtime's id of the container; empty where it does not show.
	ContainerID string `json:"containerID,omitempty"`
	// Error tells why a launch failed, ExitCode how the launcher ends for it.
	Error    string `json:"error,omitempty"`
	ExitCode int    `json:"exitCode,omitempty"`
	// Health comes with SayHealth.
	Health *HealthReport `json:"health,omitempty"`
}

// HealthReport is the state of a health check.
type HealthReport struct {
	// Status is starting, healthy or unhealthy.
	Status string `json:"status"`
	// FailingStreak is the number of consecutive failures that count.
	FailingStreak int `json:"failingStreak"`
	// LastStart, LastEnd and LastExitCode are of the last check; null before the first.
	LastStart    *time.Time `json:"lastStart,omitempty"`
	LastEnd      *time.Time `json:"lastEnd,omitempty"`
	LastExitCode *int       `json:"lastExitCode,omitempty"`
	// Output is what the last check wrote.
	Output string `json:"output,omitempty"`
}

// Response is what the agent says to each message but the last of a launch.
type Response struct {
	// Answer is heard or refused.
	Kind string `json:"answer"`
	// Reason tells why it was refused.
	Reason string `json:"reason,omitempty"`
}

// Accepted and Refused are the two answers.
func Accepted() Response { return Response{Kind: responseAccepted} }

// Refused is the answer to what cannot be.
func Refused(reason error) Response { return Response{Kind: responseRefused, Reason: reason.Error()} }

// Launch is the conversation about one launch.
type Launch struct{ conn fdpass.Conn }

// BeginLaunch tells the agent that process 1 of this container, the caller, is about to
// become the container's program. The agent may be starting: Begin tries until
// the deadline and fails then, since an enclave that does not know what runs in it
// would show something false.
func BeginLaunch(socket string, deadline time.Time) (*Launch, error) {
	for {
		conn, err := fdpass.DialUntil(socket, deadline)
		if err != nil {
			return nil, fmt.Errorf("the enclave's agent cannot be reached: %w", err)
		}
		err = send(conn, Message{Kind: MessageLaunch, ContainerID: containerID()})
		if err == nil {
			return &Launch{conn}, nil
		}
		conn.Close()
		// An agent that ended in the middle is asked again; what it refused it goes on to refuse.
		if errors.Is(err, ErrRefused) || time.Now().After(deadline) {
			return nil, err
		}
	}
}

// Failed tells why the launch failed and with which code the caller ends for it.
// What cannot be told any more is left: the caller ends, which the agent sees.
func (l *Launch) Failed(failure error, exitCode int) {
	text := failure.Error()
	message := Message{Kind: MessageFailed, Error: strings.ToValidUTF8(text[:min(len(text), 2048)], "\uFFFD"), ExitCode: exitCode}
	_ = l.conn.SetDeadline(time.Now().Add(lastWord))
	_ = l.conn.Send(message)
	_ = l.conn.Close()
}

// SendHealth tells the agent how the health check stands. The process told about is
// process 1, so that an agent that missed its launch learns of it here.
func SendHealth(socket string, health HealthReport) error {
	conn, err := fdpass.Dial(socket, time.Now().Add(conversation))
	if err != nil {
		return fmt.Errorf("the enclave's agent cannot be reached: %w", err)
	}
	defer conn.Close()
	return send(conn, Message{Kind: MessageHealth, ContainerID: containerID(), Health: &health})
}

// send sends a message with process 1 and the counters, and waits for the answer.
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
		return fmt.Errorf("the enclave's agent cannot be told: %w", err)
	}
	answer, _, err := fdpass.Receive[Response](conn)
	if err != nil {
		return fmt.Errorf("the enclave's agent did not answer: %w", err)
	}
	if answer.Kind != responseAccepted {
		return fmt.Errorf("%w: %s", ErrRefused, answer.Reason)
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

var idPattern = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// containerID finds the runtime's id in the control groups of process 1; empty
// where a namespace of control groups hides it.
func containerID() string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return FindID(string(text))
}

// FindID finds the id of a container in the text of /proc/PID/cgroup: the last
// part of a path that is one, cgroups(7).
func FindID(text string) string {
	for _, line := range strings.Split(text, "\n") {
		if found := idPattern.FindAllString(line, -1); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return ""
}
