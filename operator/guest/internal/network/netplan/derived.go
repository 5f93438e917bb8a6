package netplan

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
	"slices"
	"time"
)

const defaultRefresh = 60 * time.Second

// Network returns a network by name.
func (p Plan) Network(name string) (Network, bool) {
	for _, network := range p.Networks {
		if network.Name == name {
			return network, true
		}
	}
	return Network{}, false
}

// NamespaceOf returns the namespace of a container.
func (p Plan) NamespaceOf(container string) (Namespace, bool) {
	for _, namespace := range p.Namespaces {
		if slices.Contains(namespace.Containers, container) {
			return namespace, true
		}
	}
	return Namespace{}, false
}

// NamespaceAt returns the namespace that has an address.
func (p Plan) NamespaceAt(address netip.Addr) (Namespace, bool) {
	for _, namespace := range p.Namespaces {
		for _, attachment := range namespace.Attachments {
			if attachment.Address == address {
				return namespace, true
			}
		}
	}
	return Namespace{}, false
}

// EgressNetwork returns the network through which a namespace reaches the internet.
func (p Plan) EgressNetwork(namespace Namespace) (Network, bool) {
	for _, attachment := range namespace.Attachments {
		if network, found := p.Network(attachment.Network); found && network.Egress != EgressClosed {
			return network, true
		}
	}
	return Network{}, false
}

// DeniedRanges returns all IPv4 ranges that no network reaches, merged, sorted and
// disjoint.
func (p Plan) DeniedRanges() []netip.Prefix {
	ranges := slices.Clone(blockedRanges)
	for _, prefix := range p.Denied {
		if prefix.Addr().Is4() {
			ranges = append(ranges, prefix.Masked())
		}
	}
	slices.SortFunc(ranges, func(one, other netip.Prefix) int {
		if order := one.Addr().Compare(other.Addr()); order != 0 {
			return order
		}
		return one.Bits() - other.Bits()
	})
	merged := []netip.Prefix{}
	for _, prefix := range ranges {
		if len(merged) == 0 || !merged[len(merged)-1].Overlaps(prefix) {
			merged = append(merged, prefix)
		}
	}
	return merged
}

// Denies reports whether no network reaches an address.
func (p Plan) Denies(address netip.Addr) bool {
	if !address.Is4() {
		return true
	}
	return slices.ContainsFunc(blockedRanges, func(one netip.Prefix) bool { return one.Contains(address) }) ||
		slices.ContainsFunc(p.Denied, func(one netip.Prefix) bool { return one.Contains(address) })
}

// Refresh returns the time between two resolutions of an allowlist.
func (p Plan) Refresh() time.Duration {
	if p.RefreshSeconds == 0 {
		return defaultRefresh
	}
	return time.Duration(p.RefreshSeconds) * time.Second
}

// Gateway is the Pod's address on the network.
func (n Network) Gateway() netip.Prefix {
	return netip.PrefixFrom(n.Subnet.Addr().Next(), n.Subnet.Bits())
}

// Bridge returns the name of the network's bridge: a hash, since network names are too long.
func (n Network) Bridge() string { return "br" + digest(n.Name)[:10] }

// BridgeMAC returns the bridge's fixed hardware address.
func (n Network) BridgeMAC() net.HardwareAddr { return mac("bridge/" + n.Name) }

// AllowSet returns the name of the packet filter's set of allowed addresses.
func (n Network) AllowSet() string { return "allow_" + digest(n.Name)[:10] }

// Port returns the name of the Pod's end of a namespace's attachment.
func (n Namespace) Port(network string) string { return "ve" + digest(n.Name + "/" + network)[:10] }

// PortMAC returns the fixed hardware address of the container's end: with a random one,
// neighbours would keep sending to a container's predecessor.
func (n Namespace) PortMAC(network string) net.HardwareAddr {
	return mac("port/" + n.Name + "/" + network)
}

// Shared reports whether several containers are in the namespace.
func (n Namespace) Shared() bool { return len(n.Containers) > 1 }

// holds reports whether a container may have an address: within the range, and neither its
// first, the Pod's nor the broadcast address.
func (n Network) holds(address netip.Addr) bool {
	if !n.Subnet.IsValid() || !n.Subnet.Contains(address) {
		return false
	}
	return address != n.Subnet.Addr() && address != n.Gateway().Addr() && n.Subnet.Contains(address.Next())
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// mac returns a locally administered unicast address derived from a text.
func mac(text string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(text))
	return net.HardwareAddr{0x02, sum[0], sum[1], sum[2], sum[3], sum[4]}
}
