// Package forwardauth is `guest gate`: the shim's forward auth server, which checks API
// keys and rate limits.
//
// The shim queries it over a Unix socket before it forwards a request that needs an API
// key or counts against a rate. The gate sees the key, the caller's address, the host and
// the path, never a body; an accepted request goes from the shim to the container
// directly. Caddy calls this pattern "forward auth".
package forwardauth

import (
	"errors"
	"fmt"
	"math"
	"path"
	"time"

	"cloister.dev/guest/internal/foundation/measured"
	"cloister.dev/guest/internal/foundation/unmeasured"
	"cloister.dev/guest/internal/frontdoor/apiclient"
)

// Version is the version of the spec that this guest reads.
const Version = 2

const (
	maxCache  = 60
	maxOutage = 3600
	maxBurst  = math.MaxInt32
)

// Spec is the configuration of `guest gate`.
type Spec struct {
	// Version is Version.
	Version int `json:"version"`
	// Socket is the path of the Unix socket for the shim.
	Socket string `json:"socket"`
	// Keys is how API keys are checked; nil means that no path needs one.
	Keys *KeyCheck `json:"keys,omitempty"`
	// Rate is the limit of a caller; nil means none.
	Rate *RateLimit `json:"rate,omitempty"`
}

// KeyCheck is how API keys are checked.
type KeyCheck struct {
	// API is the address of the API.
	API apiclient.Address `json:"api"`
	// Domain is the generated host name of the enclave, for which a key must be allowed; it is not
	// measured.
	Domain string `json:"-"`
	// CacheSeconds is how long an accepted key is cached; 0 means no cache.
	CacheSeconds float64 `json:"cacheSeconds"`
	// OutageSeconds is how long after its last acceptance a key stays valid while the API cannot be reached; 0 means not at all.
	OutageSeconds float64 `json:"outageSeconds"`
}

// RateLimit is a token bucket for each caller.
type RateLimit struct {
	// PerSecond is the refill rate: requests per second in the long run.
	PerSecond float64 `json:"perSecond"`
	// Burst is the size of the bucket in requests.
	Burst int `json:"burst"`
}

// ReadSpec reads and validates the measured spec at a path, and completes it with what is not
// measured.
func ReadSpec(path string) (Spec, error) {
	spec, err := measured.Read[Spec](path)
	if err != nil || spec.Keys == nil {
		return spec, err
	}
	values, err := unmeasured.ReadFor(path)
	if err != nil {
		return Spec{}, err
	}
	if values.KeyDomain == "" {
		return Spec{}, errors.New(unmeasured.FileName + ": keyDomain: is needed where keys are checked")
	}
	spec.Keys.Domain = values.KeyDomain
	spec.Keys.API, err = spec.Keys.API.Complete(values.Cluster.API)
	return spec, err
}

// Validate returns an error that names every invalid field.
func (d Spec) Validate() error {
	var problems []error
	add := func(condition bool, format string, values ...any) {
		if condition {
			problems = append(problems, fmt.Errorf(format, values...))
		}
	}
	add(d.Version != Version, "version: %d, this guest reads %d; the operator and the guest are of different releases", d.Version, Version)
	add(!path.IsAbs(d.Socket), "socket: %q is not absolute", d.Socket)
	add(d.Keys == nil && d.Rate == nil, "keys, rate: one is needed, else there is nothing to check")
	if keys := d.Keys; keys != nil {
		if err := keys.API.Validate(); err != nil {
			problems = append(problems, fmt.Errorf("keys.api.%w", err))
		}
		add(!within(keys.CacheSeconds, 0, maxCache), "keys.cacheSeconds: %v is not in 0 to %d", keys.CacheSeconds, maxCache)
		add(!within(keys.OutageSeconds, 0, maxOutage), "keys.outageSeconds: %v is not in 0 to %d", keys.OutageSeconds, maxOutage)
	}
	if rate := d.Rate; rate != nil {
		add(!(rate.PerSecond > 0), "rate.perSecond: %v is not above 0", rate.PerSecond)
		add(rate.Burst < 1 || rate.Burst > maxBurst, "rate.burst: %d is not in 1 to %d", rate.Burst, maxBurst)
	}
	return errors.Join(problems...)
}

func within(value, least, most float64) bool { return value >= least && value <= most }

func seconds(value float64) time.Duration { return time.Duration(value * float64(time.Second)) }
