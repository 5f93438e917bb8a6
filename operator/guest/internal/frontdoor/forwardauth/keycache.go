package forwardauth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	// maxAccepted is the maximum number of cached keys.
	maxAccepted = 1 << 16
	// maxAsking is the maximum number of concurrent requests to the API; beyond it callers get 503.
	maxCalls = 256
	// breakerThreshold is the number of consecutive failures after which the circuit breaker opens for breakerOpenTime.
	breakerThreshold = 3
	breakerOpenTime  = time.Second
)

// keyHash represents a key at a host: a hash that is not reversible and valid in one process.
type keyHash [sha256.Size]byte

// call is a request to the API in flight; all callers with the same key wait for it.
type call struct {
	started  time.Time
	done     chan struct{}
	decision decision
}

// keyCache validates API keys and caches accepted ones.
type keyCache struct {
	validate      validator
	domain        string
	cache, outage time.Duration
	log           *slog.Logger
	secret        []byte

	mutex sync.Mutex
	// accepted maps a key whose last response was a 200 to the time of that request.
	accepted         *simplelru.LRU[keyHash, time.Time]
	calls            map[keyHash]*call
	failures         int
	breakerOpenUntil time.Time
}

func newKeyCache(spec KeyCheck, validate validator, log *slog.Logger) *keyCache {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails (Go's documentation)
	accepted, err := simplelru.NewLRU[keyHash, time.Time](maxAccepted, nil)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &keyCache{
		validate: validate, domain: spec.Domain, log: log, secret: secret, accepted: accepted,
		cache: seconds(spec.CacheSeconds), outage: seconds(spec.OutageSeconds),
		calls: map[keyHash]*call{},
	}
}

// hashKey returns the hash of a key at a host.
func (k *keyCache) hashKey(key, host string) keyHash {
	hash := hmac.New(sha256.New, k.secret)
	fmt.Fprintf(hash, "%d %s %s", len(key), key, host)
	return keyHash(hash.Sum(nil))
}

// isAccepted reports whether a key was accepted recently, so that it is not a guess.
func (k *keyCache) isAccepted(who keyHash) bool {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	accepted, found := k.accepted.Peek(who)
	return found && time.Now().Sub(accepted) <= max(k.cache, k.outage)
}

// check returns the decision about a key.
//
// A 200 is cached for the cache time, counted from its request. One request for a key is
// in flight at a time, so that responses keep their order; a caller that arrives
// meanwhile shares its response, unless the request is older than the cache time.
func (k *keyCache) check(ctx context.Context, who keyHash, request keyRequest) decision {
	arrived := time.Now()
	for {
		running, cached := k.join(who, request)
		if running == nil {
			return cached
		}
		select {
		case <-ctx.Done():
			return decision{status: http.StatusServiceUnavailable, wait: time.Second}
		case <-running.done:
		}
		if arrived.Sub(running.started) <= k.cache {
			return running.decision
		}
	}
}

// join returns a decision from the cache, or the call to wait for.
func (k *keyCache) join(who keyHash, request keyRequest) (*call, decision) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	now := time.Now()
	accepted, found := k.accepted.Get(who)
	if found && k.cache > 0 && now.Sub(accepted) <= k.cache {
		return nil, decision{status: http.StatusOK}
	}
	if running := k.calls[who]; running != nil {
		return running, decision{}
	}
	if now.Before(k.breakerOpenUntil) {
		return nil, k.duringOutage(who, now)
	}
	if len(k.calls) >= maxCalls {
		return nil, decision{status: http.StatusServiceUnavailable, wait: time.Second}
	}
	running := &call{started: now, done: make(chan struct{})}
	k.calls[who] = running
	if k.failures >= breakerThreshold {
		k.breakerOpenUntil = now.Add(askTimeout) // half-open: this request finds out whether the API is back
	}
	go k.run(who, request, running)
	return running, decision{}
}

// run sends the request; it continues if the first caller leaves, since others may wait too.
func (k *keyCache) run(who keyHash, request keyRequest, running *call) {
	response, err := k.validate(context.Background(), request)
	k.mutex.Lock()
	defer k.mutex.Unlock()
	delete(k.calls, who)
	running.decision = k.record(who, running.started, response, err)
	close(running.done)
}

// record caches a response and returns the decision.
func (k *keyCache) record(who keyHash, started time.Time, response decision, err error) decision {
	now := time.Now()
	if err != nil {
		k.failures++
		if k.failures == breakerThreshold {
			k.log.Warn("the API cannot be reached; recently accepted keys stay valid for a while", "error", err.Error(), "outageSeconds", k.outage.Seconds())
		}
		if k.failures >= breakerThreshold {
			k.breakerOpenUntil = now.Add(breakerOpenTime)
		}
		return k.duringOutage(who, now)
	}
	if k.failures >= breakerThreshold {
		k.log.Info("the API can be reached again")
	}
	k.failures, k.breakerOpenUntil = 0, time.Time{}
	if response.status == http.StatusOK {
		k.accepted.Add(who, started)
	} else {
		k.accepted.Remove(who)
	}
	return response
}

// duringOutage returns the decision while the API cannot be reached.
func (k *keyCache) duringOutage(who keyHash, now time.Time) decision {
	accepted, found := k.accepted.Peek(who)
	if found && k.outage > 0 && now.Sub(accepted) <= k.outage {
		return decision{status: http.StatusOK}
	}
	return decision{status: http.StatusServiceUnavailable, wait: time.Second}
}
