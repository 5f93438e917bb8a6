package forwardauth

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"
)

func TestBurstThenRate(t *testing.T) {
	rates := newLimiter(&RateLimit{PerSecond: 0.5, Burst: 3}, 10)
	now := time.Unix(1e9, 0)
	for range 3 {
		if wait := rates.take("a", now); wait != 0 {
			t.Fatalf("wait %v", wait)
		}
	}
	if wait := rates.take("a", now); wait != 2*time.Second {
		t.Errorf("wait %v", wait)
	}
	if wait := rates.take("b", now); wait != 0 {
		t.Errorf("another caller waits %v", wait)
	}
	if wait := rates.peek("a", now.Add(time.Second)); wait != time.Second {
		t.Errorf("wait %v", wait)
	}
	if rates.peek("a", now.Add(2*time.Second)) != 0 || rates.take("a", now.Add(2*time.Second)) != 0 {
		t.Error("no token after two seconds")
	}
	if wait := rates.take("a", now.Add(2*time.Second)); wait != 2*time.Second {
		t.Errorf("wait %v", wait)
	}
}

func TestPeekConsumesNothing(t *testing.T) {
	rates := newLimiter(&RateLimit{PerSecond: 1, Burst: 1}, 10)
	now := time.Unix(1e9, 0)
	for range 5 {
		if rates.peek("a", now) != 0 {
			t.Fatal("a full bucket refuses")
		}
	}
	if rates.take("a", now) != 0 || rates.peek("a", now) == 0 {
		t.Error("peek and take differ")
	}
}

func TestCallersAreBounded(t *testing.T) {
	rates := newLimiter(&RateLimit{PerSecond: 0.001, Burst: 1}, 3)
	now := time.Unix(1e9, 0)
	for number := range 100 {
		rates.take(fmt.Sprint(number), now)
	}
	if rates.buckets.Len() != 3 {
		t.Errorf("%d buckets", rates.buckets.Len())
	}
	if rates.take("99", now) == 0 {
		t.Error("the latest caller was forgotten")
	}
}

func TestNoRateLimitsNothing(t *testing.T) {
	rates := newLimiter(nil, 1)
	if rates.take("a", time.Now()) != 0 || rates.peek("a", time.Now()) != 0 {
		t.Error("a wait without a rate")
	}
}

func TestManyAtOnceGetNoMoreThanTheBurst(t *testing.T) {
	rates := newLimiter(&RateLimit{PerSecond: 0.001, Burst: 50}, 10)
	now, passed := time.Unix(1e9, 0), make(chan bool, 200)
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() { passed <- rates.take("a", now) == 0 })
	}
	all.Wait()
	close(passed)
	count := 0
	for each := range passed {
		if each {
			count++
		}
	}
	if count != 50 {
		t.Errorf("%d passed", count)
	}
}

func TestTheSmallestRateWaitsADayAtMost(t *testing.T) {
	rates := newLimiter(&RateLimit{PerSecond: 1e-300, Burst: 1}, 10)
	rates.take("a", time.Unix(1e9, 0))
	if wait := rates.take("a", time.Unix(1e9, 0)); wait != 24*time.Hour {
		t.Errorf("wait %v", wait)
	}
}

func TestTheLargestRateLimitsNothing(t *testing.T) {
	rates := newLimiter(&RateLimit{PerSecond: math.MaxFloat64, Burst: 1}, 10)
	for nanosecond := range int64(1000) {
		if wait := rates.take("a", time.Unix(1e9, nanosecond)); wait != 0 {
			t.Fatalf("wait %v", wait)
		}
	}
}

func TestCallerOf(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7":                   "address 192.0.2.7",
		"::ffff:192.0.2.7":            "address 192.0.2.7",
		"2001:db8:1:2:3:4:5:6":        "address 2001:db8:1:2::/64",
		"2001:db8:1:2:ffff::1":        "address 2001:db8:1:2::/64",
		"fe80::1%eth0":                "address fe80::/64",
		"":                            "address unknown",
		"192.0.2.7, 10.0.0.1":         "address unknown",
		"\x00192.0.2.7":               "address unknown",
		"[2001:db8::1]":               "address unknown",
		"2001:db8:1:2:3:4:192.0.2.13": "address 2001:db8:1:2::/64",
	} {
		if got := callerOf(address); got != want {
			t.Errorf("%q: got %q, not %q", address, got, want)
		}
	}
}
