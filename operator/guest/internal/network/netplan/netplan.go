// Package netplan is the configuration of `guest net`: the networks of one enclave, the
// containers on them with their addresses, and the permitted egress.
//
// The operator derives it from the configuration file; no decision is made here. Read refuses an
// inconsistent plan, so that the rest of the module can trust it. Where things are in the cluster's
// network is not measured, and cannot open what the plan does not.
package netplan

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"cloister.dev/guest/internal/foundation/measured"
	"cloister.dev/guest/internal/foundation/pattern"
	"cloister.dev/guest/internal/foundation/strictjson"
	"cloister.dev/guest/internal/foundation/unmeasured"
)

// Version is the version of the spec that this guest reads.
const Version = 2

// ShimNetwork is the reserved network between the shim and its target.
const ShimNetwork = "shim-net"

// Nameserver is the address of the name server in every container.
var Nameserver = netip.AddrFrom4([4]byte{169, 254, 20, 53})

// Kinds of egress of a network.
const (
	EgressClosed    = "closed"
	EgressAllowlist = "allowlist"
	EgressOpen      = "open"
)

// Plan is the configuration of `guest net`.
type Plan struct {
	// Version is Version.
	Version int `json:"version"`
	// Uplink is the Pod's device towards the cluster.
	Uplink string `json:"uplink"`
	// Networks are the networks of the file, and shim-net.
	Networks []Network `json:"networks"`
	// Namespaces are the network namespaces of the containers.
	Namespaces []Namespace `json:"namespaces"`
	// Denied are address ranges that no network reaches, in addition to the special-purpose
	// ones: the node's, the API server's, the cluster's.
	Denied []netip.Prefix `json:"-"`
	// Inbound are the TCP ports of the Pod that are reachable from outside: the shim's, and ssh in debug.
	Inbound []uint16 `json:"inbound"`
	// Probes is the TCP port of the kubelet's probes, which only the Pod's node reaches; 0 means none.
	Probes uint16 `json:"probes,omitempty"`
	// ProbeSources are further addresses from which the kubelet probes, in addition to the node's own and the
	// Pod's gateway.
	ProbeSources []netip.Addr `json:"-"`
	// Sidecars are the only processes of the Pod's own namespace that may connect anywhere.
	Sidecars []Sidecar `json:"sideCars"`
	// Resolver is how public names are resolved.
	Resolver Resolver `json:"resolver"`
	// SocketDirectory contains one directory with a wiring socket for each container.
	SocketDirectory string `json:"socketDirectory"`
	// StatusFile is the path of the status file.
	StatusFile string `json:"statusFile"`
	// FDStoreSocket is the socket of `guest keep`, for restarts of `guest net`; empty means none.
	FDStoreSocket string `json:"keeperSocket,omitempty"`
	// RefreshSeconds is the time between two resolutions of an allowlist; 0 means 60.
	RefreshSeconds int `json:"refreshSeconds,omitempty"`
}

// Network is one bridge.
type Network struct {
	// Name is the name in the file, or ShimNetwork.
	Name string `json:"name"`
	// Egress is one of the Egress constants.
	Egress string `json:"egress"`
	// Allow are the host names of an allowlist.
	Allow []string `json:"allow,omitempty"`
	// Subnet is the range; its first address is the Pod's on this network.
	Subnet netip.Prefix `json:"subnet"`
}

// Namespace is one network namespace. Containers of a file without networks share one;
// any other container has its own.
type Namespace struct {
	// Name is unique; for a namespace with one container it is the container's.
	Name string `json:"name"`
	// Containers are the containers in it, by the names of the file.
	Containers []string `json:"containers"`
	// Attachments are its networks; none means no connectivity.
	Attachments []Attachment `json:"attachments"`
}

// Attachment is an address on a network.
type Attachment struct {
	// Network is the name of a network.
	Network string `json:"network"`
	// Address is an address in the network's range.
	Address netip.Addr `json:"address"`
}

// Sidecar is a process of ours in the Pod's namespace, identified by its user.
type Sidecar struct {
	// Name is for messages.
	Name string `json:"name"`
	// UID is its user in the Pod.
	UID uint32 `json:"uid"`
	// Destinations are the only ones that it may reach.
	Destinations []Destination `json:"destinations"`
	// APIPort is the TCP port at which it reaches the API; 0 means that it does not.
	APIPort uint16 `json:"apiPort,omitempty"`
}

// Destination is where a sidecar may connect to, by TCP.
type Destination struct {
	// Address is an IPv4 address outside, or a container's.
	Address netip.Addr `json:"address"`
	// Port is a TCP port.
	Port uint16 `json:"port"`
}

// Resolver is how public names are resolved.
type Resolver struct {
	// UID is the user of `guest net` itself.
	UID uint32 `json:"uid"`
	// Upstream are name servers, queried in this order; empty means that no public name is resolved.
	Upstream []netip.AddrPort `json:"-"`
	// Refused are domains that are never queried upstream: the cluster's own.
	Refused []string `json:"-"`
}

var (
	networkPattern   = pattern.Lazy(`^[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?$`)
	containerPattern = pattern.Lazy(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}$`)
	devicePattern    = pattern.Lazy(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,14}$`)
	labelPattern     = pattern.Lazy(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// Read reads and validates the measured plan at a path, and completes it with what is not measured.
func Read(path string) (Plan, error) {
	plan, err := measured.Read[Plan](path)
	if err != nil {
		return Plan{}, err
	}
	values, err := unmeasured.ReadFor(path)
	if err != nil {
		return Plan{}, err
	}
	plan, err = plan.complete(values.Cluster)
	if err != nil {
		return Plan{}, fmt.Errorf("%s: %w", unmeasured.FileName, err)
	}
	return plan, nil
}

// Parse reads and validates a plan.
func Parse(data []byte) (Plan, error) { return strictjson.Parse[Plan](data) }

// Validate returns an error that names every invalid field.
func (p Plan) Validate() error {
	var problems []error
	add := func(condition bool, format string, values ...any) {
		if condition {
			problems = append(problems, fmt.Errorf(format, values...))
		}
	}
	add(p.Version != Version, "version: %d, this guest reads %d; the operator and the guest are of different releases", p.Version, Version)
	add(!devicePattern().MatchString(p.Uplink) || p.Uplink == "lo", "uplink: %q is not a device name", p.Uplink)
	add(!path.IsAbs(p.SocketDirectory), "socketDirectory: %q is not absolute", p.SocketDirectory)
	add(!path.IsAbs(p.StatusFile), "statusFile: %q is not absolute", p.StatusFile)
	add(p.FDStoreSocket != "" && !path.IsAbs(p.FDStoreSocket), "keeperSocket: %q is not absolute", p.FDStoreSocket)
	add(p.RefreshSeconds < 0 || p.RefreshSeconds > 3600, "refreshSeconds: %d is not in 0 to 3600", p.RefreshSeconds)
	add(len(p.Networks) > 64 || len(p.Namespaces) > 64 || len(p.Denied) > 4096, "networks, namespaces, denied: at most 64, 64 and 4096")
	for index, prefix := range p.Denied {
		add(!prefix.IsValid() || prefix.Addr().Is4In6(), "denied[%d]: not a range", index)
	}
	add(slices.Contains(p.Inbound, 0), "inbound: 0 is not a port")
	add(p.Probes != 0 && slices.Contains(p.Inbound, p.Probes), "probes: port %d is inbound for everybody", p.Probes)
	add(slices.ContainsFunc(p.ProbeSources, func(one netip.Addr) bool { return !one.Is4() }), "probeSources: %v are not all IPv4 addresses", p.ProbeSources)
	problems = append(problems, p.validateNetworks(), p.validateNamespaces(), p.validateOutside())
	return errors.Join(problems...)
}

func (p Plan) validateNetworks() error {
	var problems []error
	for index, network := range p.Networks {
		field := fmt.Sprintf("networks[%d]", index)
		add := func(condition bool, format string, values ...any) {
			if condition {
				problems = append(problems, fmt.Errorf(field+format, values...))
			}
		}
		add(!networkPattern().MatchString(network.Name), ".name: %q is not a network name", network.Name)
		add(!slices.Contains([]string{EgressClosed, EgressAllowlist, EgressOpen}, network.Egress), ".egress: %q is not known", network.Egress)
		add(network.Egress != EgressAllowlist && len(network.Allow) > 0, ".allow: only with egress allowlist")
		add(network.Name == ShimNetwork && network.Egress != EgressClosed, ".egress: shim-net is closed")
		add(len(network.Allow) > 256, ".allow: %d hosts, at most 256", len(network.Allow))
		for at, host := range network.Allow {
			add(!IsHost(host), ".allow[%d]: %q is not a host name in lower case", at, host)
		}
		subnet := network.Subnet
		if !subnet.IsValid() || !subnet.Addr().Is4() || subnet.Masked() != subnet || subnet.Bits() < 8 || subnet.Bits() > 30 {
			add(true, ".subnet: %q is not an IPv4 range of /8 to /30 without host bits", subnet)
			continue
		}
		add(!subnet.Addr().IsPrivate(), ".subnet: %s is not private", subnet)
		for before, other := range p.Networks[:index] {
			add(other.Name == network.Name, ".name: %q is also that of networks[%d]", network.Name, before)
			add(other.Subnet.IsValid() && other.Subnet.Overlaps(subnet), ".subnet: %s overlaps networks[%d]", subnet, before)
		}
	}
	return errors.Join(problems...)
}

func (p Plan) validateNamespaces() error {
	var problems []error
	names, containers, addresses := map[string]bool{}, map[string]bool{}, map[netip.Addr]bool{}
	for index, namespace := range p.Namespaces {
		field := fmt.Sprintf("namespaces[%d]", index)
		add := func(condition bool, format string, values ...any) {
			if condition {
				problems = append(problems, fmt.Errorf(field+format, values...))
			}
		}
		add(!containerPattern().MatchString(namespace.Name) || names[namespace.Name], ".name: %q is not a unique name", namespace.Name)
		names[namespace.Name] = true
		add(len(namespace.Containers) == 0 || len(namespace.Containers) > 64, ".containers: 1 to 64")
		for _, container := range namespace.Containers {
			key := strings.ToLower(container)
			add(!containerPattern().MatchString(container) || containers[key], ".containers: %q is not a unique name", container)
			containers[key] = true
		}
		exits, attached := 0, map[string]bool{}
		for at, attachment := range namespace.Attachments {
			network, found := p.Network(attachment.Network)
			if !found || attached[attachment.Network] {
				add(true, ".attachments[%d].network: %q is not declared, or listed twice", at, attachment.Network)
				continue
			}
			attached[attachment.Network] = true
			if network.Egress != EgressClosed {
				exits++
			}
			add(!network.holds(attachment.Address) || addresses[attachment.Address],
				".attachments[%d].address: %s is not a free container address in %s", at, attachment.Address, network.Subnet)
			addresses[attachment.Address] = true
		}
		add(exits > 1, ".attachments: more than one network that is not closed")
	}
	return errors.Join(problems...)
}

func (p Plan) validateOutside() error {
	var problems []error
	for index, car := range p.Sidecars {
		for at, destination := range car.Destinations {
			if !destination.Address.Is4() || destination.Port == 0 {
				problems = append(problems, fmt.Errorf("sideCars[%d].destinations[%d]: needs an IPv4 address and a port", index, at))
			}
		}
	}
	for index, upstream := range p.Resolver.Upstream {
		if !upstream.IsValid() || !upstream.Addr().Is4() || upstream.Port() == 0 {
			problems = append(problems, fmt.Errorf("resolver.upstream[%d]: needs an IPv4 address and a port", index))
		}
	}
	for index, domain := range p.Resolver.Refused {
		if !IsHost(domain) {
			problems = append(problems, fmt.Errorf("resolver.refused[%d]: %q is not a domain in lower case", index, domain))
		}
	}
	return errors.Join(problems...)
}

// IsHost reports whether a text is a host name (RFC 1123) in lower case and not an address.
func IsHost(text string) bool {
	if len(text) == 0 || len(text) > 253 {
		return false
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return false
	}
	for _, label := range strings.Split(text, ".") {
		if !labelPattern().MatchString(label) {
			return false
		}
	}
	return true
}
