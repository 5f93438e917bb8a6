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
	// maxAccepted bounds how many keys are remembered.
	maxAccepted = 1 << 16
	// maxAsking bounds the questions at once; beyond it callers are told to come again.
	maxAsking = 256
	// failuresToRest is how many questions in a row fail before the API is left alone for restTime.
	failuresToRest = 3
	restTime       = time.Second
)

// mark stands for a key at a host: it cannot be turned back and holds for one process.
type mark [sha256.Size]byte

// flight is a question under way; all who ask the same wait for it.
type flight struct {
	started time.Time
	done    chan struct{}
	verdict verdict
}

// keys checks API keys.
type keys struct {
	ask           asker
	domain        string
	cache, outage time.Duration
	log           *slog.Logger
	secret        []byte

	mutex sync.Mutex
	// accepted maps a key whose last answer was a 200 to when that was asked.
	accepted *simplelru.LRU[mark, time.Time]
	flights  map[mark]*flight
	failures int
	restTill time.Time
}

func newKeys(document Keys, ask asker, log *slog.Logger) *keys {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // it never fails (Go's documentation)
	accepted, err := simplelru.NewLRU[mark, time.Time](maxAccepted, nil)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &keys{
		ask: ask, domain: document.Domain, log: log, secret: secret, accepted: accepted,
		cache: seconds(document.CacheSeconds), outage: seconds(document.OutageSeconds),
		flights: map[mark]*flight{},
	}
}

// markOf answers the mark of a key at a host.
func (k *keys) markOf(key, host string) mark {
	hash := hmac.New(sha256.New, k.secret)
	fmt.Fprintf(hash, "%d %s %s", len(key), key, host)
	return mark(hash.Sum(nil))
}

// isKnown tells whether a key was accepted lately, so that asking for it is no guess.
func (k *keys) isKnown(who mark) bool {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	asked, found := k.accepted.Peek(who)
	return found && time.Now().Sub(asked) <= max(k.cache, k.outage)
}

// check tells whether a key may pass.
//
// An answer of 200 holds for the cache's time, counted from its question. One
// question for a key is under way at a time, so that its answers keep their
// order; who comes while it runs shares its answer, unless it was asked longer
// ago than the cache's time.
func (k *keys) check(ctx context.Context, who mark, asked question) verdict {
	came := time.Now()
	for {
		running, answered := k.join(who, asked)
		if running == nil {
			return answered
		}
		select {
		case <-ctx.Done():
			return verdict{status: http.StatusServiceUnavailable, wait: time.Second}
		case <-running.done:
		}
		if came.Sub(running.started) <= k.cache {
			return running.verdict
		}
	}
}

// join answers at once from what is known, or answers the question to wait for.
func (k *keys) join(who mark, asked question) (*flight, verdict) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	now := time.Now()
	accepted, found := k.accepted.Get(who)
	if found && k.cache > 0 && now.Sub(accepted) <= k.cache {
		return nil, verdict{status: http.StatusOK}
	}
	if running := k.flights[who]; running != nil {
		return running, verdict{}
	}
	if now.Before(k.restTill) {
		return nil, k.inOutage(who, now)
	}
	if len(k.flights) >= maxAsking {
		return nil, verdict{status: http.StatusServiceUnavailable, wait: time.Second}
	}
	running := &flight{started: now, done: make(chan struct{})}
	k.flights[who] = running
	if k.failures >= failuresToRest {
		k.restTill = now.Add(askTimeout) // this question finds out whether the API is back
	}
	go k.fly(who, asked, running)
	return running, verdict{}
}

// fly asks the question; the one who came first may leave, others wait for it too.
func (k *keys) fly(who mark, asked question, running *flight) {
	answer, err := k.ask(context.Background(), asked)
	k.mutex.Lock()
	defer k.mutex.Unlock()
	delete(k.flights, who)
	running.verdict = k.learn(who, running.started, answer, err)
	close(running.done)
}

// learn remembers an answer and tells what it means.
func (k *keys) learn(who mark, started time.Time, answer verdict, err error) verdict {
	now := time.Now()
	if err != nil {
		k.failures++
		if k.failures == failuresToRest {
			k.log.Warn("the API cannot be reached; keys accepted lately go on for a while", "error", err.Error(), "outageSeconds", k.outage.Seconds())
		}
		if k.failures >= failuresToRest {
			k.restTill = now.Add(restTime)
		}
		return k.inOutage(who, now)
	}
	if k.failures >= failuresToRest {
		k.log.Info("the API is reached again")
	}
	k.failures, k.restTill = 0, time.Time{}
	if answer.status == http.StatusOK {
		k.accepted.Add(who, started)
	} else {
		k.accepted.Remove(who)
	}
	return answer
}

// inOutage tells what holds while the API cannot be reached.
func (k *keys) inOutage(who mark, now time.Time) verdict {
	accepted, found := k.accepted.Peek(who)
	if found && k.outage > 0 && now.Sub(accepted) <= k.outage {
		return verdict{status: http.StatusOK}
	}
	return verdict{status: http.StatusServiceUnavailable, wait: time.Second}
}
