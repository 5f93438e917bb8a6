package forwardauth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errDown = errors.New("connection refused")

// api is a validator whose response a test sets; it counts its requests.
type api struct {
	mutex  sync.Mutex
	asked  int
	status int
	delay  time.Duration
}

func (a *api) set(status int) { a.mutex.Lock(); a.status = status; a.mutex.Unlock() }

func (a *api) count() int { a.mutex.Lock(); defer a.mutex.Unlock(); return a.asked }

func (a *api) ask(context.Context, keyRequest) (decision, error) {
	a.mutex.Lock()
	a.asked++
	status, delay := a.status, a.delay
	a.mutex.Unlock()
	time.Sleep(delay) // on the synctest clock
	if status == 0 {
		return decision{}, errDown
	}
	return decision{status: status}, nil
}

func checker(api *api, log *bytes.Buffer) *keyCache {
	spec := KeyCheck{Domain: "web.example", CacheSeconds: 1, OutageSeconds: 30}
	return newKeyCache(spec, api.ask, slog.New(slog.NewTextHandler(log, nil)))
}

func (k *keyCache) of(t *testing.T, key string) int {
	t.Helper()
	return k.check(t.Context(), k.hashKey(key, "web.example"), keyRequest{Key: key}).status
}

// spec: 25.6
func TestAnAcceptedKeyIsKeptForTheCachesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &api{status: http.StatusOK}
		keys := checker(api, &bytes.Buffer{})
		for range 3 {
			if got := keys.of(t, "tk_a"); got != http.StatusOK {
				t.Fatalf("got %d", got)
			}
		}
		if api.count() != 1 {
			t.Errorf("%d requests within the cache time", api.count())
		}
		api.set(http.StatusUnauthorized)
		time.Sleep(time.Second + time.Millisecond)
		if got := keys.of(t, "tk_a"); got != http.StatusUnauthorized || api.count() != 2 {
			t.Errorf("got %d after %d requests", got, api.count())
		}
	})
}

func TestTheCacheTimeCountsFromTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &api{status: http.StatusOK, delay: 800 * time.Millisecond}
		keys := checker(api, &bytes.Buffer{})
		keys.of(t, "tk_a")
		time.Sleep(300 * time.Millisecond)
		keys.of(t, "tk_a")
		if api.count() != 2 {
			t.Errorf("%d requests", api.count())
		}
	})
}

// spec: 25.6
func TestARefusalIsNeverKept(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusTooManyRequests} {
		synctest.Test(t, func(t *testing.T) {
			api := &api{status: status}
			keys := checker(api, &bytes.Buffer{})
			for range 2 {
				if got := keys.of(t, "tk_a"); got != status {
					t.Fatalf("got %d", got)
				}
			}
			api.set(http.StatusOK)
			if got := keys.of(t, "tk_a"); got != http.StatusOK || api.count() != 3 {
				t.Errorf("%d: got %d after %d requests", status, got, api.count())
			}
		})
	}
}

func TestConcurrentCallersShareOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &api{status: http.StatusOK, delay: 100 * time.Millisecond}
		keys := checker(api, &bytes.Buffer{})
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if got := keys.of(t, "tk_a"); got != http.StatusOK {
					t.Errorf("got %d", got)
				}
			})
		}
		all.Wait()
		if api.count() != 1 {
			t.Errorf("%d requests", api.count())
		}
	})
}

func TestAnOldRequestIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &api{status: http.StatusOK, delay: 2 * time.Second}
		keys := checker(api, &bytes.Buffer{})
		go keys.of(t, "tk_a")
		time.Sleep(1500 * time.Millisecond)
		api.set(http.StatusUnauthorized)
		if got := keys.of(t, "tk_a"); got != http.StatusUnauthorized || api.count() != 2 {
			t.Errorf("got %d after %d requests", got, api.count())
		}
	})
}

// spec: 25.7
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &bytes.Buffer{}
		api := &api{status: http.StatusOK}
		keys := checker(api, log)
		keys.of(t, "tk_good")
		api.set(http.StatusPaymentRequired)
		keys.of(t, "tk_capped")
		api.set(0)
		for range 28 {
			time.Sleep(time.Second)
			if got := keys.of(t, "tk_good"); got != http.StatusOK {
				t.Fatalf("got %d", got)
			}
			for _, key := range []string{"tk_capped", "tk_new"} {
				if got := keys.of(t, key); got != http.StatusServiceUnavailable {
					t.Fatalf("%s: got %d", key, got)
				}
			}
		}
		time.Sleep(3 * time.Second)
		if got := keys.of(t, "tk_good"); got != http.StatusServiceUnavailable {
			t.Errorf("got %d after 31 s", got)
		}
		api.set(http.StatusOK)
		time.Sleep(askTimeout)
		if got := keys.of(t, "tk_new"); got != http.StatusOK {
			t.Errorf("got %d when the API is back", got)
		}
		if strings.Count(log.String(), "cannot be reached") != 1 || strings.Count(log.String(), "reached again") != 1 || strings.Contains(log.String(), "tk_") {
			t.Errorf("log: %s", log)
		}
	})
}

func TestARefusalRevokesAKeyDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &api{status: http.StatusOK}
		keys := checker(api, &bytes.Buffer{})
		keys.of(t, "tk_a")
		time.Sleep(2 * time.Second)
		api.set(http.StatusUnauthorized)
		keys.of(t, "tk_a")
		api.set(0)
		if got := keys.of(t, "tk_a"); got != http.StatusServiceUnavailable {
			t.Errorf("got %d", got)
		}
	})
}

func TestTheCircuitBreakerSparesAnAPIThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &api{delay: askTimeout}
		keys := checker(api, &bytes.Buffer{})
		for number := range breakerThreshold {
			keys.of(t, fmt.Sprint("tk_", number))
		}
		began := time.Now()
		for number := range 1000 {
			keys.of(t, fmt.Sprint("tk_more", number))
		}
		if api.count() != breakerThreshold || time.Since(began) != 0 {
			t.Errorf("%d requests, waited %v", api.count(), time.Since(began))
		}
		time.Sleep(breakerOpenTime + time.Millisecond)
		go keys.of(t, "tk_probe")
		synctest.Wait()
		keys.of(t, "tk_other")
		if api.count() != breakerThreshold+1 {
			t.Errorf("%d questions, not one to find out", api.count())
		}
		time.Sleep(askTimeout) // until its timeout
	})
}

func TestConcurrentRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &api{status: http.StatusOK, delay: time.Second}
		keys := checker(api, &bytes.Buffer{})
		for number := range maxCalls {
			go keys.of(t, fmt.Sprint("tk_", number))
		}
		synctest.Wait()
		if got := keys.of(t, "tk_more"); got != http.StatusServiceUnavailable || api.count() != maxCalls {
			t.Errorf("got %d after %d requests", got, api.count())
		}
		time.Sleep(time.Second) // until they finish
	})
}

func TestACallerThatLeavesDoesNotCancelTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &api{status: http.StatusOK, delay: time.Second}
		keys := checker(api, &bytes.Buffer{})
		ctx, leave := context.WithCancel(t.Context())
		go keys.check(ctx, keys.hashKey("tk_a", "web.example"), keyRequest{})
		synctest.Wait()
		leave()
		if got := keys.of(t, "tk_a"); got != http.StatusOK || api.count() != 1 {
			t.Errorf("got %d after %d requests", got, api.count())
		}
	})
}

func TestKeyHashesDiffer(t *testing.T) {
	keys := checker(&api{}, &bytes.Buffer{})
	other := checker(&api{}, &bytes.Buffer{})
	seen := map[keyHash]bool{keys.hashKey("a", "b c"): true, keys.hashKey("a b", "c"): true, keys.hashKey("a", "c"): true, other.hashKey("a", "c"): true}
	if len(seen) != 4 {
		t.Errorf("%d marks", len(seen))
	}
}
