package containerspec

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/foundation/entrypoint"
)

const (
	defaultStopSignal  = unix.SIGTERM
	defaultStopTimeout = 10 * time.Second
	lastSignal         = 64
)

// Arguments returns what the container executes.
func (c Spec) Arguments() ([]string, error) {
	return entrypoint.Arguments(c.Image.Config, entrypoint.Config{Entrypoint: c.Entrypoint, Command: c.Command})
}

// Directory returns the working directory.
func (c Spec) Directory() string {
	for _, directory := range []string{c.WorkingDir, c.Image.WorkingDir} {
		if directory != "" {
			return directory
		}
	}
	return "/"
}

// UserName returns the user as written in the file, or else in the image.
func (c Spec) UserName() string {
	if c.User != "" {
		return c.User
	}
	return c.Image.User
}

// StopSignal returns the signal that stops the container.
func (c Spec) StopSignal() syscall.Signal {
	if c.Stop == nil {
		return defaultStopSignal
	}
	signal, err := ParseSignal(c.Stop.Signal)
	if err != nil {
		return defaultStopSignal // refused by Validate
	}
	return signal
}

// StopTimeout returns the time between the signal and the kill.
func (c Spec) StopTimeout() time.Duration {
	if c.Stop == nil {
		return defaultStopTimeout
	}
	return time.Duration(c.Stop.TimeoutMillis) * time.Millisecond
}

// Arguments returns what the health check executes.
func (h HealthCheck) Arguments() ([]string, error) {
	if len(h.Test) < 2 {
		return nil, errors.New("health.test: needs CMD or CMD-SHELL and what to run")
	}
	for _, word := range h.Test {
		if strings.ContainsRune(word, 0) {
			return nil, errors.New("health.test: contains a zero byte")
		}
	}
	switch h.Test[0] {
	case "CMD":
		if h.Test[1] == "" {
			return nil, errors.New("health.test: nothing to run")
		}
		return h.Test[1:], nil
	case "CMD-SHELL":
		if len(h.Test) != 2 {
			return nil, errors.New("health.test: CMD-SHELL takes one line")
		}
		return []string{"/bin/sh", "-c", h.Test[1]}, nil
	}
	return nil, fmt.Errorf("health.test: %q, expected CMD or CMD-SHELL first", h.Test[0])
}

// Interval returns the time between two checks.
func (h HealthCheck) Interval() time.Duration {
	return time.Duration(h.IntervalMillis) * time.Millisecond
}

// Timeout returns the maximum duration of one check.
func (h HealthCheck) Timeout() time.Duration {
	return time.Duration(h.TimeoutMillis) * time.Millisecond
}

// StartPeriod returns the time in which failures do not count.
func (h HealthCheck) StartPeriod() time.Duration {
	return time.Duration(h.StartPeriodMillis) * time.Millisecond
}

// ParseSignal parses a signal: its name with or without SIG, RTMIN+n, RTMAX-n, or its number.
func ParseSignal(text string) (syscall.Signal, error) {
	name := strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if number, err := strconv.ParseUint(text, 10, 8); err == nil {
		if number < 1 || number > lastSignal {
			return 0, fmt.Errorf("%q is not in 1 to %d", text, lastSignal)
		}
		return syscall.Signal(number), nil
	}
	if number, found := realTime(name); found {
		return number, nil
	}
	if number := unix.SignalNum("SIG" + name); number != 0 && name != "" {
		return number, nil
	}
	return 0, fmt.Errorf("%q is not a signal", text)
}

// realTime parses a real-time signal; the first two belong to the C library, signal(7).
func realTime(name string) (syscall.Signal, bool) {
	const first, last = 34, lastSignal
	switch name {
	case "RTMIN":
		return first, true
	case "RTMAX":
		return last, true
	}
	if text, found := strings.CutPrefix(name, "RTMIN+"); found {
		number, err := strconv.ParseUint(text, 10, 8)
		return syscall.Signal(first + number), err == nil && first+number <= last
	}
	if text, found := strings.CutPrefix(name, "RTMAX-"); found {
		number, err := strconv.ParseUint(text, 10, 8)
		return syscall.Signal(last - number), err == nil && number <= last-first
	}
	return 0, false
}
