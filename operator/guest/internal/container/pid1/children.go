package pid1

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// children starts processes and reaps every process of the container that exits: as
// process 1 (init) the guest inherits all orphans.
type children struct {
	mutex   sync.Mutex
	waiting map[int]chan syscall.WaitStatus
}

func newChildren() *children {
	made := &children{waiting: map[int]chan syscall.WaitStatus{}}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	go func() {
		for range ended {
			made.reap()
		}
	}()
	return made
}

// start starts a process and returns a channel with its exit status. The lock is held over
// the start, so that a process that exits immediately is known before it is reaped.
func (c *children) start(file string, arguments []string, attributes *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	process, err := syscall.ForkExec(file, arguments, attributes)
	if err != nil {
		return 0, nil, err
	}
	ended := make(chan syscall.WaitStatus, 1)
	c.waiting[process] = ended
	return process, ended, nil
}

// reap reaps all exited processes. One SIGCHLD may represent many.
func (c *children) reap() {
	for {
		var status syscall.WaitStatus
		c.mutex.Lock()
		process, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if process > 0 {
			if ended, ours := c.waiting[process]; ours {
				delete(c.waiting, process)
				ended <- status
			}
		}
		c.mutex.Unlock()
		if err == syscall.EINTR { //nolint:errorlint // a bare error number
			continue
		}
		if err != nil || process <= 0 {
			return
		}
	}
}
