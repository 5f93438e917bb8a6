// Package firewall is the packet filter of an enclave's Pod.
//
// The policy of all chains is drop. The whole rule set is loaded in one transaction,
// before any bridge exists and again after a restart of `guest net`, so that there is no
// moment without it. Only the sets of allowlists change later, each in one transaction.
package firewall

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/network/netplan"
)

// Table is the name of the tables, inet and bridge.
const Table = "cloister"

// ResolverMark marks the packets that `guest net` itself sends upstream. Setting it
// needs NET_ADMIN, so that no other process with the same user passes.
const ResolverMark = 0x436c6f69

const setDenied = "denied"

// Firewall is the filter of one Pod, in the network namespace of the process.
type Firewall struct {
	plan netplan.Plan
	// bridges reports whether the kernel filters on bridges too.
	bridges bool
}

// New returns a filter for a plan; it is in force after Apply.
func New(plan netplan.Plan) *Firewall { return &Firewall{plan: plan} }

// FiltersBridges reports whether frames between containers of one network are checked
// for forged senders as well. It needs a kernel with NF_TABLES_BRIDGE; without it the
// containers' lack of raw sockets is the only protection there.
func (f *Firewall) FiltersBridges() bool { return f.bridges }

// Apply loads the rule set in one transaction. Allowlist addresses of a previous
// `guest net` stay.
func (f *Firewall) Apply() error {
	present := map[string][]netip.Addr{}
	for _, network := range f.plan.Networks {
		if network.Egress == netplan.EgressAllowlist {
			addresses, err := f.Allowed(network)
			if err != nil {
				return err
			}
			present[network.Name] = addresses
		}
	}
	if err := f.applyInet(present); err != nil {
		return err
	}
	err := f.applyBridge()
	f.bridges = err == nil
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

// Allow replaces the addresses that an allowlist network reaches.
func (f *Firewall) Allow(network netplan.Network, addresses []netip.Addr) error {
	connection, err := nftables.New()
	if err != nil {
		return err
	}
	set := &nftables.Set{Table: inetTable(), Name: network.AllowSet(), KeyType: nftables.TypeIPAddr}
	connection.FlushSet(set)
	if err := connection.SetAddElements(set, elements(addresses)); err != nil {
		return err
	}
	if err := connection.Flush(); err != nil {
		return fmt.Errorf("network %s: the allowed addresses cannot be replaced: %w", network.Name, err)
	}
	return nil
}

// Allowed reads the addresses that an allowlist network reaches now.
func (f *Firewall) Allowed(network netplan.Network) ([]netip.Addr, error) {
	connection, err := nftables.New()
	if err != nil {
		return nil, err
	}
	set, err := connection.GetSetByName(inetTable(), network.AllowSet())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the packet filter cannot be read (NET_ADMIN is needed): %w", err)
	}
	present, err := connection.GetSetElements(set)
	if err != nil {
		return nil, fmt.Errorf("network %s: the allowed addresses cannot be read: %w", network.Name, err)
	}
	addresses := []netip.Addr{}
	for _, element := range present {
		if one, valid := netip.AddrFromSlice(element.Key); valid {
			addresses = append(addresses, one)
		}
	}
	return addresses, nil
}

func inetTable() *nftables.Table {
	return &nftables.Table{Name: Table, Family: nftables.TableFamilyINet}
}

// recreateTable replaces a table and its content within the transaction.
func recreateTable(connection *nftables.Conn, table *nftables.Table) *nftables.Table {
	connection.AddTable(table)
	connection.DelTable(table)
	return connection.AddTable(table)
}

func chain(table *nftables.Table, name string, hook *nftables.ChainHook, policy nftables.ChainPolicy) *nftables.Chain {
	return &nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook,
		Priority: nftables.ChainPriorityFilter, Policy: &policy}
}

func (f *Firewall) applyInet(present map[string][]netip.Addr) error {
	connection, err := nftables.New()
	if err != nil {
		return err
	}
	table := recreateTable(connection, inetTable())
	sets, err := f.addSets(connection, table, present)
	if err != nil {
		return err
	}
	chains := []struct {
		chain *nftables.Chain
		rules []match
	}{
		{chain(table, "input", nftables.ChainHookInput, nftables.ChainPolicyDrop), f.input()},
		{chain(table, "output", nftables.ChainHookOutput, nftables.ChainPolicyDrop), f.output()},
		{chain(table, "forward", nftables.ChainHookForward, nftables.ChainPolicyDrop), f.forward(sets)},
		{&nftables.Chain{Name: "leave", Table: table, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource}, f.masquerade()},
	}
	for _, one := range chains {
		connection.AddChain(one.chain)
		for _, rule := range one.rules {
			connection.AddRule(&nftables.Rule{Table: table, Chain: one.chain, Exprs: rule})
		}
	}
	if err := connection.Flush(); err != nil {
		return fmt.Errorf("the packet filter cannot be set (NET_ADMIN and NF_TABLES are needed): %w", err)
	}
	return nil
}

// addSets adds the denied ranges and one set for each allowlist.
func (f *Firewall) addSets(connection *nftables.Conn, table *nftables.Table, present map[string][]netip.Addr) (map[string]*nftables.Set, error) {
	denied := &nftables.Set{Table: table, Name: setDenied, KeyType: nftables.TypeIPAddr, Interval: true}
	if err := connection.AddSet(denied, intervals(f.plan.DeniedRanges())); err != nil {
		return nil, err
	}
	sets := map[string]*nftables.Set{setDenied: denied}
	for _, network := range f.plan.Networks {
		if network.Egress != netplan.EgressAllowlist {
			continue
		}
		set := &nftables.Set{Table: table, Name: network.AllowSet(), KeyType: nftables.TypeIPAddr}
		if err := connection.AddSet(set, elements(present[network.Name])); err != nil {
			return nil, err
		}
		sets[network.Name] = set
	}
	return sets, nil
}

// input returns the rules of packets to the Pod's own namespace: replies, DNS queries of
// the containers, and the ports that are open to the outside.
func (f *Firewall) input() []match {
	rules := []match{slices.Concat(from("lo"), accept())}
	rules = append(rules, f.antiSpoofing()...)
	rules = append(rules, slices.Concat(family(unix.NFPROTO_IPV4), state(conntrackKnown), accept()))
	for _, network := range f.plan.Networks {
		for _, protocol := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
			rules = append(rules, slices.Concat(from(network.Bridge()), family(unix.NFPROTO_IPV4),
				address(offsetDestination, expr.CmpOpEq, netplan.Nameserver), port(protocol, 53), accept()))
		}
	}
	for _, number := range f.plan.Inbound {
		rules = append(rules, slices.Concat(from(f.plan.Uplink), family(unix.NFPROTO_IPV4), port(unix.IPPROTO_TCP, number), accept()))
	}
	if f.plan.Probes != 0 {
		for _, source := range f.plan.ProbeSources {
			if source.Is4() {
				rules = append(rules, slices.Concat(from(f.plan.Uplink), family(unix.NFPROTO_IPV4),
					address(offsetSource, expr.CmpOpEq, source), port(unix.IPPROTO_TCP, f.plan.Probes), accept()))
			}
		}
	}
	return rules
}

// output returns the rules of packets from the Pod's own namespace: replies, and the
// destinations of our sidecars, matched by user. An unwrapped process in the Pod reaches
// nothing.
func (f *Firewall) output() []match {
	rules := []match{
		slices.Concat(to("lo"), accept()),
		slices.Concat(family(unix.NFPROTO_IPV4), state(conntrackKnown), accept()),
	}
	for _, upstream := range f.plan.Resolver.Upstream {
		for _, protocol := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
			rules = append(rules, slices.Concat(family(unix.NFPROTO_IPV4), user(f.plan.Resolver.UID), mark(ResolverMark),
				address(offsetDestination, expr.CmpOpEq, upstream.Addr()), port(protocol, upstream.Port()), accept()))
		}
	}
	for _, car := range f.plan.Sidecars {
		for _, destination := range car.Destinations {
			rules = append(rules, slices.Concat(family(unix.NFPROTO_IPV4), user(car.UID),
				address(offsetDestination, expr.CmpOpEq, destination.Address), port(unix.IPPROTO_TCP, destination.Port), accept()))
		}
	}
	return rules
}

// forward returns the rules of packets between containers and to the internet.
func (f *Firewall) forward(sets map[string]*nftables.Set) []match {
	rules := f.antiSpoofing()
	rules = append(rules, slices.Concat(state(conntrackInvalid), drop()))
	for _, network := range f.plan.Networks {
		// Where the kernel passes bridged packets to this chain (br_netfilter), they must be accepted.
		rules = append(rules, slices.Concat(family(unix.NFPROTO_IPV4), from(network.Bridge()), to(network.Bridge()), accept()))
	}
	for _, network := range f.plan.Networks {
		rules = append(rules, slices.Concat(family(unix.NFPROTO_IPV4), from(network.Bridge()), within(offsetDestination, sets[setDenied]), drop()))
	}
	rules = append(rules, slices.Concat(family(unix.NFPROTO_IPV4), state(conntrackKnown), accept()))
	for _, network := range f.plan.Networks {
		out := slices.Concat(family(unix.NFPROTO_IPV4), from(network.Bridge()), to(f.plan.Uplink))
		switch network.Egress {
		case netplan.EgressOpen:
			rules = append(rules, slices.Concat(out, accept()))
		case netplan.EgressAllowlist:
			rules = append(rules, slices.Concat(out, within(offsetDestination, sets[network.Name]), accept()))
		}
	}
	return rules
}

// antiSpoofing returns the rules that drop packets from a bridge with a sender outside its network.
func (f *Firewall) antiSpoofing() []match {
	rules := []match{}
	for _, network := range f.plan.Networks {
		rules = append(rules, slices.Concat(from(network.Bridge()), family(unix.NFPROTO_IPV4),
			prefix(offsetSource, expr.CmpOpNeq, network.Subnet), drop()))
	}
	return rules
}

// masquerade returns the rules that give packets to the internet the Pod's address.
func (f *Firewall) masquerade() []match {
	rules := []match{}
	for _, network := range f.plan.Networks {
		if network.Egress != netplan.EgressClosed {
			rules = append(rules, slices.Concat(family(unix.NFPROTO_IPV4), to(f.plan.Uplink),
				prefix(offsetSource, expr.CmpOpEq, network.Subnet), match{&expr.Masq{}}))
		}
	}
	return rules
}

// applyBridge accepts on each port only frames with the hardware address, the IPv4
// address and the ARP sender of the container behind it; IPv6 is dropped.
func (f *Firewall) applyBridge() error {
	connection, err := nftables.New()
	if err != nil {
		return err
	}
	table := recreateTable(connection, &nftables.Table{Name: Table, Family: nftables.TableFamilyBridge})
	admit := chain(table, "admit", nftables.ChainHookPrerouting, nftables.ChainPolicyDrop)
	connection.AddChain(admit)
	for _, namespace := range f.plan.Namespaces {
		for _, attachment := range namespace.Attachments {
			origin := slices.Concat(from(namespace.Port(attachment.Network)), hardware(namespace.PortMAC(attachment.Network)))
			connection.AddRule(&nftables.Rule{Table: table, Chain: admit, Exprs: slices.Concat(origin, etherType(unix.ETH_P_IP),
				address(offsetSource, expr.CmpOpEq, attachment.Address), accept())})
			connection.AddRule(&nftables.Rule{Table: table, Chain: admit, Exprs: slices.Concat(origin, etherType(unix.ETH_P_ARP),
				address(offsetARPSender, expr.CmpOpEq, attachment.Address), accept())})
		}
	}
	if err := connection.Flush(); err != nil {
		return fmt.Errorf("the packet filter of the bridges cannot be set: %w", err)
	}
	return nil
}
