package agent

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/foundation/report"
)

// Magic numbers of file systems, statfs(2).
const (
	magicGroup1  = 0x27e0eb
	magicGroup2  = 0x63677270
	magicProcess = 0x50494446
)

const maxCounter = 64 << 10

// handles are the open process and counters of one instance of a container, by the
// names of package report.
type handles map[string]*os.File

// newHandles checks the files that a container sent. They may be anything that it can
// open; nothing is read that could block or that is not the kernel's.
func newHandles(names []string, files []*os.File) (handles, error) {
	made := handles{}
	if len(names) != len(files) {
		return nil, fmt.Errorf("%d files are named, %d were sent", len(names), len(files))
	}
	for index, name := range names {
		if made[name] != nil {
			return nil, fmt.Errorf("file %q was sent twice", name)
		}
		made[name] = files[index]
	}
	return made, made.check()
}

// check returns what is wrong with the files that a container sent.
func (h handles) check() error {
	for name, file := range h {
		if err := checkHandle(name, file); err != nil {
			return err
		}
	}
	if h[report.Process] == nil {
		return errors.New("no process was sent")
	}
	return nil
}

func checkHandle(name string, file *os.File) error {
	descriptor := int(file.Fd())
	var about unix.Statfs_t
	if err := unix.Fstatfs(descriptor, &about); err != nil {
		return fmt.Errorf("file %q: %w", name, err)
	}
	switch name {
	case report.Process:
		target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", descriptor))
		if err != nil {
			return err
		}
		if about.Type != magicProcess && target != "anon_inode:[pidfd]" {
			return errors.New("the descriptor named process is not a process")
		}
	case report.CPU, report.Memory, report.MemoryDetail, report.OOM:
		flags, err := unix.FcntlInt(uintptr(descriptor), unix.F_GETFL, 0)
		if err != nil {
			return err
		}
		if (about.Type != magicGroup1 && about.Type != magicGroup2) || flags&unix.O_ACCMODE != unix.O_RDONLY {
			return fmt.Errorf("file %q is not a counter of a cgroup", name)
		}
	default:
		return fmt.Errorf("file %q is not known", name)
	}
	return nil
}

func (h handles) close() {
	for _, file := range h {
		file.Close()
	}
}

// identity returns a unique number of the process (the inode of its pidfd); 0 where the
// kernel has no pidfs (before 6.9).
func (h handles) identity() uint64 {
	descriptor := int(h[report.Process].Fd())
	var about unix.Statfs_t
	var file unix.Stat_t
	if unix.Fstatfs(descriptor, &about) != nil || about.Type != magicProcess || unix.Fstat(descriptor, &file) != nil {
		return 0
	}
	return file.Ino
}

// ended reports whether the process has exited; it waits for at most wait milliseconds,
// -1 means without limit.
func (h handles) ended(wait int) bool {
	poll := []unix.PollFd{{Fd: int32(h[report.Process].Fd()), Events: unix.POLLIN}}
	for {
		count, err := unix.Poll(poll, wait)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && count > 0
	}
}

// read reads a counter; false if the runtime does not show it or its cgroup is gone.
func (h handles) read(name string) (string, bool) {
	file := h[name]
	if file == nil {
		return "", false
	}
	data := make([]byte, maxCounter)
	count, err := unix.Pread(int(file.Fd()), data, 0)
	if err != nil || count == 0 {
		return "", false
	}
	return string(data[:count]), true
}

// sample contains the counters of one container at one time.
type sample struct {
	// cpu is the CPU time used; memory the bytes in use without reclaimable file
	// cache. Each is valid only with its flag.
	cpu       time.Duration
	hasCPU    bool
	memory    int64
	hasMemory bool
}

func (h handles) sample() sample {
	var taken sample
	if text, shown := h.read(report.CPU); shown {
		taken.cpu, taken.hasCPU = ParseCPU(text)
	}
	total, shown := h.read(report.Memory)
	detail, _ := h.read(report.MemoryDetail)
	if shown {
		taken.memory, taken.hasMemory = ParseMemory(total, detail)
	}
	return taken
}

// oomKills returns the number of OOM kills in the container.
func (h handles) oomKills() (int64, bool) {
	text, shown := h.read(report.OOM)
	if !shown {
		return 0, false
	}
	return field(text, "oom_kill")
}

// ParseCPU parses the CPU time used: cpu.stat of cgroup v2, cpuacct.usage of v1.
func ParseCPU(text string) (time.Duration, bool) {
	if used, found := field(text, "usage_usec"); found {
		return time.Duration(min(used, math.MaxInt64/1000)) * time.Microsecond, true
	}
	used, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return time.Duration(used), err == nil && used >= 0
}

// ParseMemory parses the bytes in use without reclaimable file cache (the working
// set), as kubelet and container engines report it.
func ParseMemory(total, detail string) (int64, bool) {
	used, err := strconv.ParseInt(strings.TrimSpace(total), 10, 64)
	if err != nil || used < 0 {
		return 0, false
	}
	cache, found := field(detail, "total_inactive_file")
	if !found {
		cache, _ = field(detail, "inactive_file")
	}
	return max(0, used-cache), true
}

// field reads one line of a file of `key value` lines.
func field(text, key string) (int64, bool) {
	for _, line := range strings.Split(text, "\n") {
		name, value, _ := strings.Cut(line, " ")
		if name != key {
			continue
		}
		number, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		return number, err == nil && number >= 0
	}
	return 0, false
}
