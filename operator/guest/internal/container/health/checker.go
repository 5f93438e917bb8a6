package health

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"cloister.dev/guest/internal/container/containerspec"
	"cloister.dev/guest/internal/container/launch"
	"cloister.dev/guest/internal/foundation/report"
)

// The checker is a guest in the tenant's memory: it collects its garbage early.
const garbagePercent = 20

// reconnectEvery is the time between two attempts to reach the enclave's agent.
const reconnectEvery = 500 * time.Millisecond

// Run is `guest checker`: it runs the health check of a container as long as the container
// lives. The launcher started it with the privileges of the container's program, and is at the
// other end of the inherited socket until it becomes that program.
func Run(path string, socket int) error {
	container, err := containerspec.Read(path)
	if err != nil {
		return err
	}
	if container.Health == nil || container.Agent == nil {
		return errors.New("the container has no health check, or no agent to report to")
	}
	guest, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(garbagePercent)
	token, err := launch.AwaitProgram(socket)
	if err != nil {
		return fmt.Errorf("the launcher: %w", err)
	}
	checks := &checks{
		line:      []string{guest, CheckCommand, "-spec", path},
		container: container,
		token:     token,
		state:     NewState(time.Now()),
	}
	checks.run()
	return nil
}

// checks is a running checker.
type checks struct {
	line      []string
	container containerspec.Spec
	token     string
	state     State
	// agent is the connection to the agent; nil while there is none.
	agent *report.Checks
}

// run runs one check after the other and reports each result. Meanwhile it keeps the connection
// to the agent, which learns from it immediately that the container still has a checker.
func (c *checks) run() {
	c.publish()
	for {
		c.idle(time.Now().Add(Wait(c.state, *c.container.Health)))
		c.state = Next(c.state, *c.container.Health, runTest(c.line, c.container.Health.Timeout()))
		c.publish()
	}
}

// idle waits until a time, and reconnects to the agent when the connection is lost.
func (c *checks) idle(until time.Time) {
	for {
		left := time.Until(until)
		if left <= 0 {
			return
		}
		if c.agent == nil {
			time.Sleep(min(left, reconnectEvery))
			c.connect()
			continue
		}
		select {
		case <-c.agent.Lost():
			c.drop()
		case <-time.After(left):
			return
		}
	}
}

// publish reports the state to the agent.
func (c *checks) publish() {
	if c.agent == nil {
		c.connect()
		return
	}
	if err := c.agent.Report(c.state.report()); err != nil {
		c.drop()
		c.connect()
	}
}

// connect opens a connection with the present state; without one the next attempt is later.
func (c *checks) connect() {
	if made, err := report.BeginChecks(c.container.Agent.Socket, c.token, c.state.report()); err == nil {
		c.agent = made
	}
}

func (c *checks) drop() {
	c.agent.Close()
	c.agent = nil
}
