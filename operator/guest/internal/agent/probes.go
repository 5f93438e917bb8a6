package agent

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// readyPath, healthPath with a container's name and stagePath with that of a stage of the boot are
// what the kubelet probes. With waitQuery, a number of seconds, a response that would be negative
// waits that long for a positive one, at most for longest: so the kubelet learns at once that a boot
// is complete, and need not ask every second.
const (
	readyPath  = "/ready"
	healthPath = "/health/"
	stagePath  = "/stage/"
	waitQuery  = "wait"
	longest    = time.Minute
)

// serveProbe responds to the kubelet's probes: 200 or 503, and 404 for another path.
func (a *agent) serveProbe(response http.ResponseWriter, request *http.Request) {
	passes := a.predicate(request.URL.Path)
	if passes == nil {
		response.WriteHeader(http.StatusNotFound)
		return
	}
	seconds, _ := strconv.Atoi(request.URL.Query().Get(waitQuery)) // anything else is no wait
	deadline := time.NewTimer(min(time.Duration(max(seconds, 0))*time.Second, longest))
	defer deadline.Stop()
	for {
		changed := a.passes.next()
		if passes(time.Now()) {
			return
		}
		select {
		case <-changed:
			continue
		case <-deadline.C:
		case <-request.Context().Done():
		}
		response.WriteHeader(http.StatusServiceUnavailable)
		return
	}
}

// predicate returns what a path asks; nil if it asks nothing.
func (a *agent) predicate(path string) func(now time.Time) bool {
	if path == readyPath {
		return a.isReady
	}
	if stage, found := strings.CutPrefix(path, stagePath); found && slices.Contains(stageOrder, stage) {
		return func(time.Time) bool {
			a.mutex.Lock()
			defer a.mutex.Unlock()
			ended, known := a.state.Boot.Outcomes[stage]
			return known && ended.Status != statusFailed
		}
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

// broadcast wakes everybody who waits.
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
