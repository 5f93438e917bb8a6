package netplan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"cloister.dev/guest/internal/foundation/unmeasured"
)

// blocks are the ranges of which the networks of an enclave may be. A measured plan is written with
// the first; a cluster that uses that itself names another.
var blocks = []netip.Prefix{
	netip.MustParsePrefix("172.30.0.0/16"), netip.MustParsePrefix("172.29.0.0/16"), netip.MustParsePrefix("172.28.0.0/16"),
	netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("10.254.0.0/16"), netip.MustParsePrefix("10.143.0.0/16"),
	netip.MustParsePrefix("10.89.0.0/16"),
}

// complete returns the plan with the cluster's values. It refuses addresses that are the enclave's
// own: a sidecar that may connect to the API could be led to a container.
func (p Plan) complete(cluster unmeasured.Cluster) (Plan, error) {
	if !slices.Contains(blocks, cluster.Block) {
		return Plan{}, fmt.Errorf("cluster.block: %s is not one of %v", cluster.Block, blocks)
	}
	p = p.moved(cluster.Block)
	p.Denied, p.ProbeSources = cluster.Denied, cluster.ProbeSources
	p.Resolver.Upstream, p.Resolver.Refused = cluster.Resolvers, cluster.Refused
	p.Sidecars = slices.Clone(p.Sidecars)
	for index, car := range p.Sidecars {
		if car.APIPort == 0 {
			continue
		}
		car.Destinations = slices.Clone(car.Destinations)
		for _, address := range cluster.API {
			car.Destinations = append(car.Destinations, Destination{Address: address, Port: car.APIPort})
		}
		p.Sidecars[index] = car
	}
	return p, errors.Join(p.checkOutside(cluster), p.Validate())
}

// checkOutside returns an error for an address that is not outside of the enclave.
func (p Plan) checkOutside(cluster unmeasured.Cluster) error {
	var problems []error
	outside := func(field string, address netip.Addr) {
		inside := address.IsLoopback() || address.IsUnspecified() ||
			slices.ContainsFunc(p.Networks, func(one Network) bool { return one.Subnet.Contains(address) })
		if inside {
			problems = append(problems, fmt.Errorf("%s: %s is an address of the enclave itself", field, address))
		}
	}
	for index, address := range cluster.API {
		outside(fmt.Sprintf("cluster.api[%d]", index), address)
	}
	for index, resolver := range cluster.Resolvers {
		outside(fmt.Sprintf("cluster.resolvers[%d]", index), resolver.Addr())
	}
	for index, source := range cluster.ProbeSources {
		outside(fmt.Sprintf("cluster.probeSources[%d]", index), source)
	}
	return errors.Join(problems...)
}

// moved returns the plan with the networks of the first block in another one, at the same places.
func (p Plan) moved(block netip.Prefix) Plan {
	networks := slices.Clone(p.Networks)
	for index, network := range networks {
		networks[index].Subnet = netip.PrefixFrom(movedAddress(network.Subnet.Addr(), block), network.Subnet.Bits())
	}
	namespaces := slices.Clone(p.Namespaces)
	for index, namespace := range namespaces {
		namespaces[index].Attachments = slices.Clone(namespace.Attachments)
		for at, attachment := range namespace.Attachments {
			namespaces[index].Attachments[at].Address = movedAddress(attachment.Address, block)
		}
	}
	p.Networks, p.Namespaces = networks, namespaces
	return p
}

func movedAddress(address netip.Addr, block netip.Prefix) netip.Addr {
	if !blocks[0].Contains(address) {
		return address
	}
	first, own := block.Addr().As4(), address.As4()
	return netip.AddrFrom4([4]byte{first[0], first[1], own[2], own[3]})
}
