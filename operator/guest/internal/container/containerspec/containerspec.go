// Package containerspec is the spec of one container. `guest exec`, `probe` and `stop`
// of a container read the same file, which the Pod mounts read-only.
//
// The spec contains no secret: the tenant can read it.
package containerspec

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/capability"
	"cloister.dev/guest/internal/container/tmpfs"
	"cloister.dev/guest/internal/foundation/entrypoint"
	"cloister.dev/guest/internal/foundation/measured"
	"cloister.dev/guest/internal/foundation/pattern"
	"cloister.dev/guest/internal/foundation/strictjson"
)

// Version is the version of the spec that this guest reads.
const Version = 1

// Kinds of IPC namespaces.
const (
	// IPCPrivate is the container's own namespace.
	IPCPrivate = "private"
	// IPCShared is the Pod's namespace: for containers that share it, and on a Host
	// without isolation.
	IPCShared = "shared"
)

// Spec is the spec of one container.
type Spec struct {
	// Version is Version.
	Version int `json:"version"`
	// Name is the container's name in the configuration file.
	Name string `json:"name"`
	// Hostname is its host name, in its own UTS namespace; empty leaves the Pod's.
	Hostname string `json:"hostname,omitempty"`
	// Network is how it is attached to its network; nil leaves the Pod's network.
	Network *NetworkAttachment `json:"network,omitempty"`
	// Agent is where launches and health checks are reported; nil means nowhere.
	Agent *AgentReporting `json:"agent,omitempty"`
	// IPC is IPCPrivate or IPCShared.
	IPC string `json:"ipc"`
	// Image is the image's configuration.
	Image ImageConfig `json:"image"`
	// Entrypoint and Command are the file's; nil means the image's.
	Entrypoint []string `json:"entrypoint,omitempty"`
	Command    []string `json:"command,omitempty"`
	// WorkingDir is the file's; empty means the image's.
	WorkingDir string `json:"workingDir,omitempty"`
	// User is the file's; empty means the image's.
	User string `json:"user,omitempty"`
	// Groups are supplementary groups that the Pod adds.
	Groups []int `json:"groups,omitempty"`
	// KeepHome leaves HOME unchanged; else it is the user's home directory.
	KeepHome bool `json:"keepHome,omitempty"`
	// Capabilities are the kept capabilities, without the prefix CAP_.
	Capabilities []string `json:"capabilities,omitempty"`
	// LowPorts lets every user listen on ports below 1024 in the container's network namespace.
	LowPorts bool `json:"lowPorts,omitempty"`
	// Tmpfs maps directories to the options of the tmpfs mounted on them.
	Tmpfs map[string]string `json:"tmpfs,omitempty"`
	// Limits maps names of resource limits (nofile, nproc, memlock, core, stack) to values.
	Limits map[string]Limit `json:"limits,omitempty"`
	// GuestPaths are directories of the guest, on which nothing may be mounted.
	GuestPaths []string `json:"guestPaths"`
	// Health is the health check; nil means none.
	Health *HealthCheck `json:"health,omitempty"`
	// Stop is the stop signal and timeout; nil means TERM and ten seconds.
	Stop *Stop `json:"stop,omitempty"`
	// Shells enables SSH sessions; nil, as in every enclave that is not a debug enclave, disables them.
	Shells *Shells `json:"shells,omitempty"`
}

// Shells is how `guest ssh` starts sessions in the container. With it the guest stays process 1.
type Shells struct {
	// Socket is the path of the container's shell socket.
	Socket string `json:"socket"`
	// Client is the uid of `guest ssh`, the only one that is served.
	Client uint32 `json:"client"`
}

// NetworkAttachment is the connection to `guest net`.
type NetworkAttachment struct {
	// Socket is the path of the container's wiring socket.
	Socket string `json:"socket"`
	// DeadlineSeconds bounds the wait for the network; 1 to 600.
	DeadlineSeconds int `json:"deadlineSeconds"`
}

// AgentReporting is the connection to `guest agent`.
type AgentReporting struct {
	// Socket is the path of the container's report socket.
	Socket string `json:"socket"`
	// DeadlineSeconds bounds the launcher's wait for a response; 1 to 600.
	DeadlineSeconds int `json:"deadlineSeconds"`
}

// ImageConfig is the part of an image's configuration that a container starts from.
type ImageConfig struct {
	entrypoint.Config
	// WorkingDir is the image's; empty means the root directory.
	WorkingDir string `json:"workingDir,omitempty"`
	// User is the image's; empty means root.
	User string `json:"user,omitempty"`
}

// Limit is a resource limit, setrlimit(2); -1 means unlimited.
type Limit struct {
	Soft int64 `json:"soft"`
	Hard int64 `json:"hard"`
}

// HealthCheck is a health check as in container engines.
type HealthCheck struct {
	// Test is the check: CMD and arguments, or CMD-SHELL and one line for /bin/sh.
	Test []string `json:"test"`
	// IntervalMillis is the time between two checks.
	IntervalMillis int64 `json:"intervalMillis"`
	// TimeoutMillis is the maximum duration of one check.
	TimeoutMillis int64 `json:"timeoutMillis"`
	// StartPeriodMillis is the time in which failures do not count.
	StartPeriodMillis int64 `json:"startPeriodMillis"`
	// Retries is the number of consecutive failures that make a container unhealthy.
	Retries int `json:"retries"`
}

// Stop is how a container is stopped.
type Stop struct {
	// Signal is a name with or without SIG, or a number.
	Signal string `json:"signal"`
	// TimeoutMillis is the time between the signal and the kill.
	TimeoutMillis int64 `json:"timeoutMillis"`
}

// limitNumbers maps limits to their numbers, setrlimit(2).
var limitNumbers = map[string]int{
	"core": unix.RLIMIT_CORE, "memlock": unix.RLIMIT_MEMLOCK, "nofile": unix.RLIMIT_NOFILE,
	"nproc": unix.RLIMIT_NPROC, "stack": unix.RLIMIT_STACK,
}

// LimitNumber returns the number of a resource limit that Validate accepted.
func LimitNumber(name string) int { return limitNumbers[name] }

var (
	namePattern = pattern.Lazy(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}$`)
	hostPattern = pattern.Lazy(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// Read reads and validates the spec at a path.
func Read(path string) (Spec, error) { return measured.Read[Spec](path) }

// Parse parses and validates a spec.
func Parse(data []byte) (Spec, error) { return strictjson.Parse[Spec](data) }

// Validate returns an error that names every invalid field.
func (c Spec) Validate() error {
	var problems []error
	wrong := func(field, format string, values ...any) {
		problems = append(problems, fmt.Errorf(field+": "+format, values...))
	}
	if c.Version != Version {
		wrong("version", "%d, this guest reads %d; the operator and the guest are of different releases", c.Version, Version)
	}
	if !namePattern().MatchString(c.Name) {
		wrong("name", "%q is not a container name", c.Name)
	}
	if c.Hostname != "" && !hostPattern().MatchString(c.Hostname) {
		wrong("hostname", "%q is not a host name", c.Hostname)
	}
	if c.IPC != IPCPrivate && c.IPC != IPCShared {
		wrong("ipc", "%q, expected %s or %s", c.IPC, IPCPrivate, IPCShared)
	}
	if _, err := c.Arguments(); err != nil {
		wrong("command", "%w", err)
	}
	if _, err := capability.ParseKept(c.Capabilities); err != nil {
		problems = append(problems, err)
	}
	if directory := c.Directory(); !path.IsAbs(directory) || strings.ContainsRune(directory, 0) {
		wrong("workingDir", "%q is not absolute", directory)
	}
	if len(c.GuestPaths) == 0 || slices.ContainsFunc(c.GuestPaths, func(one string) bool { return !path.IsAbs(one) || path.Clean(one) != one || one == "/" }) {
		wrong("guestPaths", "must list the absolute, clean directories of the guest")
	}
	if c.Shells != nil && (!path.IsAbs(c.Shells.Socket) || c.Shells.Client == 0) {
		wrong("shells", "needs the absolute path of a socket and a client other than root")
	}
	problems = append(problems, c.validateNetwork(), c.validateAgent(), c.validateMounts(), c.validateTimes())
	return errors.Join(problems...)
}

func (c Spec) validateNetwork() error {
	if c.Network == nil {
		if c.LowPorts {
			return errors.New("lowPorts: needs a network of the container's own; the Pod's is not changed")
		}
		return nil
	}
	switch {
	case !path.IsAbs(c.Network.Socket):
		return fmt.Errorf("network.socket: %q is not absolute", c.Network.Socket)
	case c.Network.DeadlineSeconds < 1 || c.Network.DeadlineSeconds > 600:
		return fmt.Errorf("network.deadlineSeconds: %d is not in 1 to 600", c.Network.DeadlineSeconds)
	case c.Hostname == "":
		return errors.New("hostname: needed with a network of the container's own")
	}
	return nil
}

func (c Spec) validateAgent() error {
	switch {
	case c.Agent == nil:
		return nil
	case !path.IsAbs(c.Agent.Socket):
		return fmt.Errorf("agent.socket: %q is not absolute", c.Agent.Socket)
	case c.Agent.DeadlineSeconds < 1 || c.Agent.DeadlineSeconds > 600:
		return fmt.Errorf("agent.deadlineSeconds: %d is not in 1 to 600", c.Agent.DeadlineSeconds)
	}
	return nil
}

func (c Spec) validateMounts() error {
	var problems []error
	if len(c.Tmpfs) > 64 {
		problems = append(problems, fmt.Errorf("tmpfs: %d entries, at most 64", len(c.Tmpfs)))
	}
	for target, options := range c.Tmpfs {
		if err := tmpfs.CheckPath(target, c.GuestPaths...); err != nil {
			problems = append(problems, fmt.Errorf("tmpfs: %w", err))
		}
		if _, err := tmpfs.ParseOptions(options); err != nil {
			problems = append(problems, fmt.Errorf("tmpfs[%s]: %w", target, err))
		}
	}
	for name, limit := range c.Limits {
		if _, known := limitNumbers[name]; !known {
			problems = append(problems, fmt.Errorf("limits: %q is not known", name))
		}
		if limit.Soft < -1 || limit.Hard < -1 || (limit.Hard >= 0 && (limit.Soft < 0 || limit.Soft > limit.Hard)) {
			problems = append(problems, fmt.Errorf("limits[%s]: soft %d must be within hard %d", name, limit.Soft, limit.Hard))
		}
	}
	return errors.Join(problems...)
}

func (c Spec) validateTimes() error {
	var problems []error
	if health := c.Health; health != nil {
		if _, err := health.Arguments(); err != nil {
			problems = append(problems, err)
		}
		if health.IntervalMillis < 1 || health.TimeoutMillis < 1 || health.StartPeriodMillis < 0 ||
			max(health.IntervalMillis, health.TimeoutMillis, health.StartPeriodMillis) > (365*24*time.Hour).Milliseconds() {
			problems = append(problems, errors.New("health: interval and timeout are at least 1 ms, the start period not negative, all at most a year"))
		}
		if health.Retries < 1 {
			problems = append(problems, fmt.Errorf("health.retries: %d, at least 1", health.Retries))
		}
		if c.Agent == nil {
			problems = append(problems, errors.New("health: needs agent, to which its state is reported"))
		}
	}
	if stop := c.Stop; stop != nil {
		if _, err := ParseSignal(stop.Signal); err != nil {
			problems = append(problems, fmt.Errorf("stop.signal: %w", err))
		}
		if stop.TimeoutMillis < 0 || stop.TimeoutMillis > (24*time.Hour).Milliseconds() {
			problems = append(problems, fmt.Errorf("stop.timeoutMillis: %d is not in 0 to a day", stop.TimeoutMillis))
		}
	}
	return errors.Join(problems...)
}
