package agent

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// probed is the response to a probe, and when it came.
type probed struct {
	status int
	after  time.Duration
}

// kubelet asks a prober about one path whose state a test sets.
type kubelet struct {
	*prober
	passes bool
}

func newKubelet(presumed bool) *kubelet {
	k := &kubelet{prober: &prober{changed: newBroadcast(), presumed: presumed, reported: map[string]bool{}}}
	k.predicate = func(path string) func(time.Time) bool {
		if path != readyPath {
			return nil
		}
		return func(time.Time) bool {
			k.mutex.Lock()
			defer k.mutex.Unlock()
			return k.passes
		}
	}
	return k
}

// turn sets the state.
func (k *kubelet) turn(passes bool) {
	k.mutex.Lock()
	k.passes = passes
	k.mutex.Unlock()
	k.changed.send()
}

// ask sends a probe; its response comes on the channel.
func (k *kubelet) ask(ctx context.Context, target string) <-chan probed {
	answered := make(chan probed, 1)
	began := time.Now()
	go func() {
		response := httptest.NewRecorder()
		k.ServeHTTP(response, httptest.NewRequestWithContext(ctx, http.MethodGet, target, nil))
		answered <- probed{response.Code, time.Since(began)}
	}()
	return answered
}

func (k *kubelet) must(t *testing.T, answered <-chan probed, want probed) {
	t.Helper()
	if got := <-answered; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestAProbeIsHeldWhileNothingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKubelet(false)
		k.must(t, k.ask(t.Context(), "/ready"), probed{http.StatusServiceUnavailable, 0})
		k.must(t, k.ask(t.Context(), "/ready?wait=7"), probed{http.StatusServiceUnavailable, 7 * time.Second})
		k.must(t, k.ask(t.Context(), "/ready?wait=90000"), probed{http.StatusServiceUnavailable, longest})
		waiting := k.ask(t.Context(), "/ready?wait=600")
		time.Sleep(time.Minute)
		k.turn(false)
		synctest.Wait()
		time.Sleep(time.Minute)
		k.turn(true)
		k.must(t, waiting, probed{http.StatusOK, 2 * time.Minute})
		k.must(t, k.ask(t.Context(), "/ready?wait=600"), probed{http.StatusOK, 0})
		k.turn(false)
		k.must(t, k.ask(t.Context(), "/ready?wait=600"), probed{http.StatusServiceUnavailable, 0})
		waiting = k.ask(t.Context(), "/ready?wait=600")
		time.Sleep(time.Second)
		k.turn(true)
		k.must(t, waiting, probed{http.StatusOK, time.Second})
		k.must(t, k.ask(t.Context(), "/other?wait=600"), probed{http.StatusNotFound, 0})
	})
}

func TestAfterARestartTheFirstNegativeResponseIsGivenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKubelet(true)
		k.must(t, k.ask(t.Context(), "/ready?wait=5"), probed{http.StatusServiceUnavailable, 0})
		k.must(t, k.ask(t.Context(), "/ready?wait=5"), probed{http.StatusServiceUnavailable, 5 * time.Second})
	})
}

func TestSoManyProbesAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKubelet(false)
		ctx, cancel := context.WithCancel(t.Context())
		held := make([]<-chan probed, mostHeld)
		for at := range held {
			held[at] = k.ask(ctx, "/ready?wait=600")
		}
		synctest.Wait()
		k.must(t, k.ask(t.Context(), "/ready?wait=600"), probed{http.StatusServiceUnavailable, 0})
		time.Sleep(time.Second)
		cancel()
		for _, each := range held {
			k.must(t, each, probed{http.StatusServiceUnavailable, time.Second})
		}
		k.must(t, k.ask(t.Context(), "/ready?wait=3"), probed{http.StatusServiceUnavailable, 3 * time.Second})
	})
}
