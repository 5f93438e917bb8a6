package forwardauth

import (
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// maxCallers bounds the memory of the rates: beyond it the caller that was away longest starts anew.
const maxCallers = 1 << 16

// limiter holds a token bucket for each caller.
type limiter struct {
	limit   rate.Limit
	burst   int
	mutex   sync.Mutex
	buckets *simplelru.LRU[string, *rate.Limiter]
}

// newLimiter makes the buckets; nil, which limits nothing, where there is no rate.
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

// take takes one request from a caller's bucket; 0 means that it may pass, else
// the answer is how long it must wait for the next.
func (l *limiter) take(caller string, now time.Time) time.Duration {
	return l.consume(caller, now, 1)
}

// peek answers what take would, and takes nothing.
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
			return 0 // a bucket that is not there is full
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

// waitTime answers how long a part of a token takes, at least a millisecond and at most a day.
func waitTime(tokens, perSecond float64) time.Duration {
	wait := math.Min(math.Max(tokens/perSecond, 0.001), (24 * time.Hour).Seconds())
	return time.Duration(wait * float64(time.Second))
}

// callerOf names the caller at an address: of IPv6 the first half, since the
// second is the caller's own to choose.
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
