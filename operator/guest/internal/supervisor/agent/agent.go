package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cloister.dev/guest/internal/evidence/attestation"
	"cloister.dev/guest/internal/foundation/fdstore"
)

const (
	// statusEvery is the time between two writes of container-status.json.
	statusEvery = 5 * time.Second
	// bootEvery is the time between two checks of what the boot waits for: hurriedly while it is
	// younger than hurry, in which most boots end.
	hurriedly  = 50 * time.Millisecond
	hurry      = 15 * time.Second
	bootEvery  = 500 * time.Millisecond
	storeEvery = time.Minute
	// shimWait is how long the shim may take for a handshake.
	shimWait = time.Second
)

// ErrBootFailed is returned when the boot of the enclave has failed; the
// termination file has the reason.
var ErrBootFailed = errors.New("the boot failed")

// agent is a running `guest agent`.
type agent struct {
	spec    Spec
	log     *slog.Logger
	changed chan struct{}
	// passes signals that something that probes request may have changed.
	passes *broadcast

	// evidenceTimeout is how long the machine may take to give evidence.
	evidenceTimeout time.Duration
	// attester creates attestation documents; nil means that there are none.
	attester atomic.Pointer[attestation.Attester]

	mutex sync.Mutex
	state state
	// instances are the running processes that are watched, by container.
	instances map[string]*instance
	meter     meter
	// fdStore is the fd store's socket as last seen; a new socket means an empty store.
	fdStore os.FileInfo
	// completionSaved means that the completed boot is in the state file: it is reported only then.
	completionSaved bool
}

// instance is one run of a container: its process and counters. They stay open as
// long as the agent tracks the instance, and while it is referenced.
type instance struct {
	held    sync.Mutex
	handles handles
	closed  bool
}

func (l *instance) close() {
	l.held.Lock()
	defer l.held.Unlock()
	l.closed = true
	l.handles.close()
}

// Run runs the agent until the context is done or the boot fails.
func Run(ctx context.Context, spec Spec, log *slog.Logger) error {
	a := &agent{spec: spec, log: log, changed: make(chan struct{}, 1), passes: newBroadcast(), instances: map[string]*instance{}, evidenceTimeout: evidenceTimeout}
	known, err := readState(spec, time.Now().UTC())
	if err != nil {
		return err
	}
	a.state = known
	if err := a.layOutService(); err != nil {
		return err
	}
	a.adoptInstances()
	if err := a.write(time.Now().UTC()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 2+len(spec.Containers))
	if err := a.open(ctx, failed); err != nil {
		return err
	}
	a.attest(ctx)
	return a.loop(ctx, failed)
}

// open creates all sockets and serves them until the context is done.
func (a *agent) open(ctx context.Context, failed chan<- error) error {
	for _, one := range a.spec.Containers {
		listener, err := a.listen(one.Name)
		if err != nil {
			return fmt.Errorf("container %s: %w", one.Name, err)
		}
		context.AfterFunc(ctx, func() { listener.Close() })
		go func() { failed <- a.serveReports(ctx, one, listener) }()
	}
	return a.serveHTTP(ctx, failed)
}

// loop writes what has changed, and everything every statusEvery.
func (a *agent) loop(ctx context.Context, failed <-chan error) error {
	stored := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if ctx.Err() == nil {
				return err
			}
			return nil
		case <-a.changed:
		case <-timer.C:
		}
		now := time.Now().UTC()
		booting := a.advanceBoot(now)
		if err := a.write(now); err != nil {
			return err
		}
		if err := a.reportFailure(now); err != nil {
			return err
		}
		a.passes.send()
		if a.fdStoreRestarted() || now.Sub(stored) >= storeEvery {
			stored = now
			a.storeAll()
		}
		switch {
		case booting && now.Sub(a.state.Boot.StartedAt) < hurry:
			timer.Reset(hurriedly)
		case booting:
			timer.Reset(bootEvery)
		default:
			timer.Reset(statusEvery)
		}
	}
}

// advanceBoot updates the boot stages and reports whether the boot is still under way.
func (a *agent) advanceBoot(now time.Time) bool {
	a.mutex.Lock()
	over := a.state.Boot.isOver()
	_, shim := a.state.Boot.Outcomes[stageShim]
	a.mutex.Unlock()
	if over {
		return false
	}
	shim = shim || a.shimServes()
	seen := a.externalStages()
	a.mutex.Lock()
	defer a.mutex.Unlock()
	boot := &a.state.Boot
	for _, stage := range slices.Sorted(maps.Keys(seen)) {
		found := seen[stage]
		if found.Reason != "" {
			boot.fail(stage, found.Reason, fmt.Sprintf("Stage %s: %s", stage, found.Detail), now)
			continue
		}
		boot.settle(stage, found.Status, found.Detail, now)
	}
	for stage, rule := range a.spec.Stages {
		if len(rule.Launched) > 0 && !slices.ContainsFunc(rule.Launched, func(name string) bool { return a.state.Containers[name].FirstLaunch == nil }) {
			boot.settle(stage, statusOK, "", now)
		}
	}
	if shim {
		boot.settle(stageShim, statusOK, "", now)
	}
	boot.checkContainers(a.spec.Containers, a.state.Containers, now)
	boot.complete(now)
	return !boot.isOver()
}

// adoptInstances adopts the processes that the previous agent left in the fd store.
// A container that was running and whose process is not there is unknown until its checker
// reports or it is started again.
func (a *agent) adoptInstances() {
	for _, known := range a.state.Containers {
		if known.Phase == phaseLaunching || known.Phase == phaseRunning {
			known.Phase = phaseUnknown
		}
	}
	if a.spec.FDStoreSocket == "" {
		return
	}
	files, err := fdstore.Fetch(a.spec.FDStoreSocket, fdstore.Containers)
	if err != nil {
		a.log.Warn("nothing can be fetched from the fd store", "error", err)
		return
	}
	for _, one := range a.spec.Containers {
		found := handles{}
		for _, kind := range fileNames {
			if file := files[one.Name+"/"+kind]; file != nil {
				found[kind] = file
				delete(files, one.Name+"/"+kind)
			}
		}
		a.adoptInstance(one.Name, found)
	}
	handles(files).close()
}

func (a *agent) adoptInstance(name string, found handles) {
	known := a.state.Containers[name]
	if known.Phase != phaseUnknown || found.check() != nil || found.identity() != known.Process {
		found.close()
		return
	}
	if found.ended(0) {
		// It exited while no agent ran: neither the time nor the code is known.
		known.end(nil)
		found.close()
		return
	}
	known.adopt(known.Process, known.ContainerID, time.Now().UTC())
	taken := &instance{handles: found}
	a.instances[name] = taken
	go a.watch(name, taken)
}

// fdStoreRestarted reports whether the fd store was restarted since the last call.
func (a *agent) fdStoreRestarted() bool {
	socket, err := os.Stat(a.spec.FDStoreSocket)
	if err != nil {
		return false
	}
	before := a.fdStore
	a.fdStore = socket
	return before != nil && (!os.SameFile(before, socket) || !before.ModTime().Equal(socket.ModTime()))
}

// storeAll sends all processes and counters to the fd store, which may have been restarted.
func (a *agent) storeAll() {
	a.mutex.Lock()
	lives := maps.Clone(a.instances)
	a.mutex.Unlock()
	for name, one := range lives {
		a.store(name, one)
	}
}

func (a *agent) store(name string, one *instance) {
	one.held.Lock()
	defer one.held.Unlock()
	if a.spec.FDStoreSocket == "" || one.closed {
		return
	}
	for kind, file := range one.handles {
		if err := fdstore.Store(a.spec.FDStoreSocket, fdstore.Containers+name+"/"+kind, file); err != nil {
			a.log.Warn("the fd store does not accept a process", "container", name, "error", err)
			return
		}
	}
}

// watch waits for the exit of a container's process.
func (a *agent) watch(name string, one *instance) {
	one.handles.ended(-1)
	now := time.Now().UTC()
	a.mutex.Lock()
	if a.instances[name] == one {
		delete(a.instances, name)
		known := a.state.Containers[name]
		// The counters disappear with the container, a moment after its process.
		known.noteKills(one.handles)
		known.end(&now)
	}
	a.mutex.Unlock()
	one.close()
	a.signal()
}

// signal triggers the loop.
func (a *agent) signal() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// shimServes reports whether what the shim asks is there, and the shim completes a TLS handshake for each of
// its host names. It listens before it has certificates, and refuses handshakes until then.
func (a *agent) shimServes() bool {
	for _, socket := range []string{a.spec.GateSocket, a.spec.BodiesSocket} {
		if socket == "" {
			continue
		}
		if _, err := os.Stat(socket); err != nil {
			return false
		}
	}
	dialer, address := &net.Dialer{Timeout: shimWait}, a.spec.Shim.String()
	listening, err := dialer.Dial("tcp", address)
	if err != nil {
		return false
	}
	listening.Close()
	for _, name := range a.spec.Unmeasured.Hostnames {
		// Clients verify the certificate; here it matters that there is one.
		config := &tls.Config{ServerName: name, InsecureSkipVerify: true}
		conn, err := tls.DialWithDialer(dialer, "tcp", address, config)
		if err != nil {
			return false
		}
		conn.Close()
	}
	return true
}
