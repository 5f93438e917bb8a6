// Package allowlist maintains the addresses that allowlist networks reach: each host
// is resolved every minute and at each lookup by a container, so that an address is
// open before the container that looked it up connects.
package allowlist

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	miekgdns "github.com/miekg/dns"

	"cloister.dev/guest/internal/network/dns"
	"cloister.dev/guest/internal/network/netplan"
)

const (
	// maxAddresses is the maximum size of one network's set.
	maxAddresses = 8192
	parallel     = 16
	hostTimeout  = 10 * time.Second
)

// Filter enforces a network's addresses, replaced atomically.
type Filter interface {
	// Allow replaces the set.
	Allow(network netplan.Network, addresses []netip.Addr) error
	// Allowed reads the set.
	Allowed(network netplan.Network) ([]netip.Addr, error)
}

// Manager maintains the sets of all allowlist networks of a plan.
type Manager struct {
	plan     netplan.Plan
	upstream dns.Exchanger
	filter   Filter
	now      func() time.Time
	log      *slog.Logger

	mutex sync.Mutex
	sets  map[string]*set
}

// set is the set of addresses that one network reaches.
type set struct {
	network netplan.Network
	// hosts maps host -> address -> when it expires, unless seen again.
	hosts map[string]map[netip.Addr]time.Time
	// adopted are addresses of a predecessor; they are removed once every host was resolved.
	adopted map[netip.Addr]bool
	// failing are hosts whose last resolution failed; their addresses stay.
	failing map[string]bool
	// resolved are hosts that have been resolved at least once.
	resolved map[string]bool
	// inForce are the addresses in the filter.
	inForce []netip.Addr
	// dropped is the number of addresses beyond maxAddresses.
	dropped int
}

// New returns a manager that starts with the addresses that a predecessor left in the filter.
func New(plan netplan.Plan, upstream dns.Exchanger, filter Filter, now func() time.Time, log *slog.Logger) (*Manager, error) {
	manager := &Manager{plan: plan, upstream: upstream, filter: filter, now: now, log: log, sets: map[string]*set{}}
	for _, network := range plan.Networks {
		if network.Egress != netplan.EgressAllowlist {
			continue
		}
		present, err := filter.Allowed(network)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(present, netip.Addr.Compare)
		one := &set{network: network, hosts: map[string]map[netip.Addr]time.Time{}, adopted: map[netip.Addr]bool{},
			failing: map[string]bool{}, resolved: map[string]bool{}, inForce: present}
		for _, address := range present {
			one.adopted[address] = true
		}
		manager.sets[network.Name] = one
	}
	return manager, nil
}

// Learn adds addresses of a host that a container has looked up. They are in force when
// Learn returns; there is an error when the set has no room for them.
func (m *Manager) Learn(network netplan.Network, host string, addresses []netip.Addr, ttl time.Duration) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	one, found := m.sets[network.Name]
	if !found {
		return nil
	}
	m.remember(one, host, addresses, ttl)
	if err := m.apply(one); err != nil {
		return err
	}
	for _, address := range addresses {
		if _, found := slices.BinarySearchFunc(one.inForce, address, netip.Addr.Compare); !found {
			return fmt.Errorf("network %s: %w", network.Name, errFull)
		}
	}
	return nil
}

// errFull is returned for addresses beyond maxAddresses.
var errFull = fmt.Errorf("the allowlist has more than %d addresses", maxAddresses)

// Refresh resolves every host once and applies the results, one replacement for each
// network. A host that cannot be resolved keeps its addresses.
func (m *Manager) Refresh(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(m.sets)) {
		one := m.sets[name]
		answers := m.resolveAll(ctx, one.network.Allow)
		m.mutex.Lock()
		for host, answer := range answers {
			delete(one.failing, host)
			if answer == nil {
				one.failing[host] = true
				continue
			}
			addresses, ttl := dns.Clean(m.plan, answer)
			m.expire(one, host)
			m.remember(one, host, addresses, time.Duration(ttl)*time.Second)
			one.resolved[host] = true
		}
		if len(one.resolved) == len(one.network.Allow) {
			clear(one.adopted)
		}
		err := m.apply(one)
		m.mutex.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// NetworkState is the state of a network's allowlist.
type NetworkState struct {
	// Addresses is the number of addresses in force.
	Addresses int `json:"addresses"`
	// Dropped is the number of addresses that are not reachable because there are too many.
	Dropped int `json:"dropped,omitempty"`
	// Unresolved are the hosts whose last resolution failed.
	Unresolved []string `json:"unresolved"`
}

// State returns the state of each allowlist network.
func (m *Manager) State() map[string]NetworkState {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	states := map[string]NetworkState{}
	for name, one := range m.sets {
		states[name] = NetworkState{Addresses: len(one.inForce), Dropped: one.dropped, Unresolved: slices.Sorted(maps.Keys(one.failing))}
	}
	return states
}

// resolveAll resolves all hosts; nil represents a failure.
func (m *Manager) resolveAll(ctx context.Context, hosts []string) map[string]*miekgdns.Msg {
	var mutex sync.Mutex
	var group sync.WaitGroup
	answers, slots := map[string]*miekgdns.Msg{}, make(chan struct{}, parallel)
	for _, host := range hosts {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			bounded, cancel := context.WithTimeout(ctx, hostTimeout)
			defer cancel()
			answer, err := m.upstream.Exchange(bounded, host, miekgdns.TypeA)
			if err != nil {
				answer = nil
			}
			mutex.Lock()
			defer mutex.Unlock()
			answers[host] = answer
		})
	}
	group.Wait()
	return answers
}

// remember records addresses of a host. An address stays for two refreshes after it was
// last seen, and at least for its TTL: a host with rotating addresses returns only some
// of them in each answer.
func (m *Manager) remember(one *set, host string, addresses []netip.Addr, ttl time.Duration) {
	if one.hosts[host] == nil {
		one.hosts[host] = map[netip.Addr]time.Time{}
	}
	until := m.now().Add(max(ttl, 2*m.plan.Refresh()))
	for _, address := range addresses {
		one.hosts[host][address] = until
	}
}

// expire drops the expired addresses of a host, only after it has been resolved.
func (m *Manager) expire(one *set, host string) {
	maps.DeleteFunc(one.hosts[host], func(_ netip.Addr, until time.Time) bool { return !m.now().Before(until) })
}

// apply replaces the set in the filter if it has changed.
func (m *Manager) apply(one *set) error {
	desired := slices.Collect(maps.Keys(one.adopted))
	for _, addresses := range one.hosts {
		desired = slices.AppendSeq(desired, maps.Keys(addresses))
	}
	slices.SortFunc(desired, netip.Addr.Compare)
	desired = slices.Compact(desired)
	dropped := max(0, len(desired)-maxAddresses)
	desired = desired[:len(desired)-dropped]
	if (dropped > 0) != (one.dropped > 0) {
		m.log.Warn("addresses of an allowlist beyond the limit are not reachable", "network", one.network.Name, "limit", maxAddresses, "dropped", dropped)
	}
	one.dropped = dropped
	if slices.Equal(desired, one.inForce) {
		return nil
	}
	if err := m.filter.Allow(one.network, desired); err != nil {
		return err
	}
	one.inForce = desired
	return nil
}
