package forwardauth

import (
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// maxCallers is the maximum number of buckets: beyond it the least recent caller is forgotten.
const maxCallers = 1 << 16

// leastGuesses are the refused keys that an address may send, whatever the rate of the file:
// behind a gateway all clients have one address, and a new key must be checked at the API.
var leastGuesses = RateLimit{PerSecond: 10, Burst: 100}

// guessesOf returns the rate of refused keys of an address; nil if the file has no rate.
func guessesOf(limits *RateLimit) *RateLimit {
	if limits == nil {
		return nil
	}
	return &RateLimit{
		PerSecond: max(limits.PerSecond, leastGuesses.PerSecond),
		Burst:     max(limits.Burst, leastGuesses.Burst),
	}
}

// limiter is a rate limiter with a token bucket for each caller.
type limiter struct {
	limit   rate.Limit
	burst   int
	mutex   sync.Mutex
	buckets *simplelru.LRU[string, *rate.Limiter]
}

// newLimiter returns a limiter; nil, which limits nothing, if there is no rate.
func newLimiter(limits *RateLimit, callers int) *limiter {
	if limits == nil {
		return nil
	}
	buckets, err := simplelru.NewLRU[string, *rate.Limiter](callers, nil)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &limiter{limit: rate.Limit(limits.PerSecond), burst: limits.Burst, buckets: buckets}
}

// take consumes a token of a caller. It returns 0 if the request may pass, else the time
// until the next token.
func (l *limiter) take(caller string, now time.Time) time.Duration {
	return l.consume(caller, now, 1)
}

// peek returns what take would, without consuming a token.
func (l *limiter) peek(caller string, now time.Time) time.Duration {
	return l.consume(caller, now, 0)
}

func (l *limiter) consume(caller string, now time.Time, requests int) time.Duration {
	if l == nil {
		return 0
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	bucket, found := l.buckets.Get(caller)
	if !found {
		if requests == 0 {
			return 0 // a missing bucket is full
		}
		bucket = rate.NewLimiter(l.limit, l.burst)
		l.buckets.Add(caller, bucket)
	}
	tokens := bucket.TokensAt(now)
	if tokens >= 1 && bucket.AllowN(now, requests) {
		return 0
	}
	return waitTime(1-tokens, float64(l.limit))
}

// waitTime returns the time until a fraction of a token is refilled, at least 1 ms and at most a day.
func waitTime(tokens, perSecond float64) time.Duration {
	wait := math.Min(math.Max(tokens/perSecond, 0.001), (24 * time.Hour).Seconds())
	return time.Duration(wait * float64(time.Second))
}

// callerOf returns the caller of an address: of IPv6 the /64, within which the caller
// chooses its addresses freely.
func callerOf(address string) string {
	parsed, err := netip.ParseAddr(address)
	if err != nil {
		return "address unknown"
	}
	parsed = parsed.Unmap().WithZone("")
	if parsed.Is4() {
		return "address " + parsed.String()
	}
	prefix, err := parsed.Prefix(64)
	if err != nil {
		return "address unknown"
	}
	return "address " + prefix.String()
}
