// Package dns is the name server of an enclave: it resolves the names of containers on
// networks that client and container share, and public names as far as the client's
// egress permits.
//
// The client is identified by the source address, which the packet filter has checked.
package dns

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"

	"cloister.dev/guest/internal/network/netplan"
)

// Action is how a query is handled.
type Action int

const (
	// NXDomain: no such name for this client.
	NXDomain Action = iota
	// Local: answered with the addresses of a container.
	Local
	// NoData: the name may exist, but not with records of this type.
	NoData
	// Forward: a public name, to be resolved upstream.
	Forward
	// Refuse: the client is not a container (REFUSED).
	Refuse
)

// Decision is an action with its parameters.
type Decision struct {
	Action Action
	// Addresses are the addresses of the container, for Local.
	Addresses []netip.Addr
	// EgressNetwork is the network through which the client reaches the name, for Forward.
	EgressNetwork netplan.Network
	// Name is the name in lower case without the last dot.
	Name string
}

// forwardable are the record types that an open network may query. AAAA is not among
// them: IPv6 packets are dropped, and a program would wait for a timeout.
var forwardable = map[uint16]bool{
	dns.TypeA: true, dns.TypeCAA: true, dns.TypeCNAME: true, dns.TypeMX: true, dns.TypeNS: true,
	dns.TypeSOA: true, dns.TypeSRV: true, dns.TypeTXT: true,
}

// Decide returns how a query from an address is handled.
func Decide(plan netplan.Plan, asker netip.Addr, name string, kind uint16) Decision {
	decision := Decision{Name: strings.ToLower(strings.TrimSuffix(name, "."))}
	namespace, found := plan.NamespaceAt(asker)
	if !found {
		decision.Action = Refuse
		return decision
	}
	if addresses, isContainer := containerAddresses(plan, namespace, decision.Name); isContainer {
		decision.Addresses = addresses
		switch {
		case len(addresses) == 0:
			decision.Action = NXDomain
		case kind == dns.TypeA || kind == dns.TypeANY:
			decision.Action = Local
		default:
			decision.Action = NoData
		}
		return decision
	}
	exit, hasExit := plan.EgressNetwork(namespace)
	if !hasExit || !isPublic(plan, decision.Name) {
		return decision
	}
	if exit.Egress == netplan.EgressAllowlist && !isAllowed(exit, decision.Name) {
		return decision
	}
	decision.EgressNetwork = exit
	decision.Action = NoData
	if kind == dns.TypeA || (exit.Egress == netplan.EgressOpen && forwardable[kind]) {
		decision.Action = Forward
	}
	return decision
}

// containerAddresses returns a container's addresses on the networks that it shares with
// a namespace, and whether a container has that name.
func containerAddresses(plan netplan.Plan, asking netplan.Namespace, name string) ([]netip.Addr, bool) {
	for _, namespace := range plan.Namespaces {
		for _, container := range namespace.Containers {
			if !strings.EqualFold(container, name) {
				continue
			}
			addresses := []netip.Addr{}
			for _, theirs := range namespace.Attachments {
				for _, ours := range asking.Attachments {
					if theirs.Network == ours.Network && theirs.Network != netplan.ShimNetwork {
						addresses = append(addresses, theirs.Address)
					}
				}
			}
			if namespace.Name == asking.Name && len(addresses) == 0 && len(namespace.Attachments) > 0 {
				addresses = append(addresses, namespace.Attachments[0].Address)
			}
			return addresses, true
		}
	}
	return nil, false
}

// isPublic reports whether a name may be resolved upstream: not one without a dot, in a
// reverse zone or in the cluster's own domains.
func isPublic(plan netplan.Plan, name string) bool {
	if !strings.Contains(name, ".") || len(name) > 253 {
		return false
	}
	for _, domain := range append([]string{"arpa", "localhost", "local", "internal"}, plan.Resolver.Refused...) {
		if name == domain || strings.HasSuffix(name, "."+domain) {
			return false
		}
	}
	return true
}

func isAllowed(network netplan.Network, name string) bool {
	for _, host := range network.Allow {
		if host == name {
			return true
		}
	}
	return false
}

// Clean removes from an upstream response what a container must not get: addresses that
// no network reaches (a public name that points inside), IPv6 addresses, hints, and the
// sections next to the answer. It returns the remaining addresses and the smallest TTL of
// the answer in seconds.
func Clean(plan netplan.Plan, answer *dns.Msg) ([]netip.Addr, uint32) {
	kept, addresses, ttl := []dns.RR{}, []netip.Addr{}, uint32(maxTTL)
	for _, record := range answer.Answer {
		if record == nil || record.Header() == nil || !forwardable[record.Header().Rrtype] {
			continue
		}
		if one, isAddress := record.(*dns.A); isAddress {
			address, valid := netip.AddrFromSlice(one.A.To4())
			if !valid || plan.Denies(address) {
				continue
			}
			addresses = append(addresses, address)
		}
		record.Header().Ttl = min(record.Header().Ttl, maxTTL)
		ttl = min(ttl, record.Header().Ttl)
		kept = append(kept, record)
	}
	authority := []dns.RR{}
	for _, record := range answer.Ns {
		if _, isStart := record.(*dns.SOA); isStart && len(kept) == 0 {
			authority = append(authority, record)
		}
	}
	answer.Answer, answer.Ns, answer.Extra = kept, authority, nil
	return addresses, ttl
}

// maxTTL is the longest time in seconds for which a container may cache an answer.
const maxTTL = 60
