package agent

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// readyPath, shimPath and healthPath with a container's name are what the kubelet probes. With
// waitQuery, a number of seconds, a negative response that only repeats the previous one is delayed
// that long, at most for longest, until it is positive: so the kubelet learns immediately that a boot
// is complete, or that a container is healthy again, and need not ask every second for it.
const (
	readyPath  = "/ready"
	healthPath = "/health/"
	shimPath   = "/stage/shim"
	waitQuery  = "wait"
	longest    = 10 * time.Minute
	// mostHeld is the maximum number of delayed requests. The kubelet has one for each probe;
	// on a Host with network isolation by Pod the containers reach the port too.
	mostHeld = 256
)

// prober responds to the kubelet's probes.
type prober struct {
	// predicate returns what a path asks; nil if it asks nothing.
	predicate func(path string) func(now time.Time) bool
	// changed signals that a response may have changed.
	changed *broadcast
	// presumed is what the kubelet assumes about a path that was not asked yet.
	presumed bool

	mutex sync.Mutex
	// reported is the last response by path.
	reported map[string]bool
	held     int
}

// ServeHTTP responds 200 or 503, and 404 for another path.
func (p *prober) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	path := request.URL.Path
	passes := p.predicate(path)
	if passes == nil {
		response.WriteHeader(http.StatusNotFound)
		return
	}
	seconds, _ := strconv.Atoi(request.URL.Query().Get(waitQuery)) // anything else means not to wait
	changed := p.changed.next()
	passed := passes(time.Now())
	if !passed && seconds > 0 && p.hold(path) {
		passed = p.await(request.Context(), changed, min(time.Duration(seconds)*time.Second, longest), passes)
		p.release()
	}
	p.mutex.Lock()
	p.reported[path] = passed
	p.mutex.Unlock()
	if !passed {
		response.WriteHeader(http.StatusServiceUnavailable)
	}
}

// hold reports whether a negative response about a path must be delayed, and counts it; release ends
// that.
func (p *prober) hold(path string) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	before, known := p.reported[path]
	if !known {
		before = p.presumed
	}
	if before || p.held >= mostHeld {
		return false
	}
	p.held++
	return true
}

func (p *prober) release() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.held--
}

// await waits until it passes, and reports whether it did in time.
func (p *prober) await(ctx context.Context, changed <-chan struct{}, wait time.Duration, passes func(time.Time) bool) bool {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		select {
		case <-changed:
		case <-deadline.C:
			return false
		case <-ctx.Done():
			return false
		}
		changed = p.changed.next()
		if passes(time.Now()) {
			return true
		}
	}
}

// predicate returns what a path asks; nil if it asks nothing.
func (a *agent) predicate(path string) func(now time.Time) bool {
	if path == readyPath {
		return a.isReady
	}
	if path == shimPath {
		// The shim may be restarted after its stage is over.
		return func(time.Time) bool { return a.isOver(stageShim) && a.shimListens() }
	}
	name, found := strings.CutPrefix(path, healthPath)
	index := slices.IndexFunc(a.spec.Containers, func(one Container) bool { return one.Name == name && one.checked() })
	if !found || index < 0 {
		return nil
	}
	return func(now time.Time) bool {
		a.mutex.Lock()
		defer a.mutex.Unlock()
		known := a.state.Containers[name]
		return known.Phase == phaseRunning && known.isAsExpected(a.spec.Containers[index], now)
	}
}

// isOver reports whether a stage of the boot has ended, and did not fail.
func (a *agent) isOver(stage string) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	ended, known := a.state.Boot.Outcomes[stage]
	return known && ended.Status != statusFailed
}

// shimListens reports whether the shim accepts connections.
func (a *agent) shimListens() bool {
	conn, err := net.DialTimeout("tcp", a.spec.Shim.String(), shimWait)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// isReady reports whether the boot is complete and saved, every container has started, each one
// with a health check is healthy, and none is known to have failed.
func (a *agent) isReady(now time.Time) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.state.Boot.CompletedAt == nil || !a.completionSaved {
		return false
	}
	for _, one := range a.spec.Containers {
		if known := a.state.Containers[one.Name]; known.FirstStart == nil || !known.isAsExpected(one, now) {
			return false
		}
	}
	return true
}

// broadcast wakes all that wait.
type broadcast struct {
	mutex sync.Mutex
	// waited is closed by the next send.
	waited chan struct{}
}

func newBroadcast() *broadcast { return &broadcast{waited: make(chan struct{})} }

// next returns a channel that the next send closes.
func (b *broadcast) next() <-chan struct{} {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.waited
}

func (b *broadcast) send() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	close(b.waited)
	b.waited = make(chan struct{})
}
