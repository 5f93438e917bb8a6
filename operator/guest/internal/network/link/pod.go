package link

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/network/netattach"
	"cloister.dev/guest/internal/network/netplan"
)

// Indexes of per-device IPv4 settings, linux/ip.h.
const (
	confForwarding    = 1
	confSendRedirects = 6
)

// attrInetConf is IFLA_INET_CONF, linux/if_link.h.
const attrInetConf = 1

// ConfigureBridges creates the missing bridges of a plan and leaves existing ones, sets
// the name server's address on the loopback device, and enables forwarding on the bridges
// and the uplink only.
//
// The packet filter must be in force before the call.
func ConfigureBridges(plan netplan.Plan) error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.AddrReplace(loopback, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(netplan.Nameserver, 32)), Scope: unix.RT_SCOPE_HOST}); err != nil {
		return fmt.Errorf("the name server's address cannot be set: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return err
	}
	for _, network := range plan.Networks {
		if err := configureBridge(network); err != nil {
			return fmt.Errorf("network %s: %w", network.Name, err)
		}
	}
	uplink, err := netlink.LinkByName(plan.Uplink)
	if err != nil {
		return fmt.Errorf("the uplink %s: %w", plan.Uplink, err)
	}
	return setConf(uplink, confForwarding, 1)
}

func configureBridge(network netplan.Network) error {
	device, err := netlink.LinkByName(network.Bridge())
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = network.Bridge()
		attributes.HardwareAddr = network.BridgeMAC()
		snooping := false
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes, MulticastSnooping: &snooping}); err != nil {
			return fmt.Errorf("the bridge cannot be created (NET_ADMIN is needed): %w", err)
		}
		device, err = netlink.LinkByName(network.Bridge())
	}
	if err != nil {
		return err
	}
	if err := netlink.AddrReplace(device, &netlink.Addr{IPNet: ipNet(network.Gateway())}); err != nil {
		return fmt.Errorf("the bridge's address cannot be set: %w", err)
	}
	if err := setUp(network.Bridge()); err != nil {
		return err
	}
	forwarding := uint32(0)
	if network.Egress != netplan.EgressClosed {
		forwarding = 1
	}
	return errors.Join(setConf(device, confForwarding, forwarding), setConf(device, confSendRedirects, 0))
}

// Attach creates the veth pairs of a namespace, one end on its bridge, the other inside,
// and returns the interfaces that the launcher must configure. Devices of a predecessor
// with the same names are removed first.
func Attach(plan netplan.Plan, namespace netplan.Namespace, inside *os.File) ([]netattach.Interface, error) {
	interfaces := Describe(plan, namespace)
	for index, attachment := range namespace.Attachments {
		network, found := plan.Network(attachment.Network)
		if !found {
			return nil, fmt.Errorf("network %s is not in the plan", attachment.Network)
		}
		if err := attachOne(namespace, network, interfaces[index].Name, inside); err != nil {
			return nil, fmt.Errorf("network %s: %w", network.Name, err)
		}
	}
	return interfaces, nil
}

// Describe returns the interfaces that Attach returns, without creating them.
func Describe(plan netplan.Plan, namespace netplan.Namespace) []netattach.Interface {
	exit, hasExit := plan.EgressNetwork(namespace)
	interfaces := []netattach.Interface{}
	for index, attachment := range namespace.Attachments {
		network, _ := plan.Network(attachment.Network)
		interfaces = append(interfaces, netattach.Interface{
			Name:    fmt.Sprintf("eth%d", index),
			Address: netip.PrefixFrom(attachment.Address, network.Subnet.Bits()),
			Gateway: network.Gateway().Addr(),
			Default: hasExit && exit.Name == network.Name,
		})
	}
	return interfaces
}

func attachOne(namespace netplan.Namespace, network netplan.Network, name string, inside *os.File) error {
	port := namespace.Port(network.Name)
	if err := remove(port); err != nil {
		return err
	}
	bridge, err := netlink.LinkByName(network.Bridge())
	if err != nil {
		return fmt.Errorf("the bridge: %w", err)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = port
	attributes.MasterIndex = bridge.Attrs().Index
	pair := netlink.NewVeth(attributes)
	pair.PeerName = name
	pair.PeerHardwareAddr = namespace.PortMAC(network.Name)
	pair.PeerNamespace = netlink.NsFd(int(inside.Fd()))
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("the devices cannot be created: %w", err)
	}
	return setUp(port)
}

// Detach removes the devices of a namespace.
func Detach(namespace netplan.Namespace) error {
	var problems []error
	for _, attachment := range namespace.Attachments {
		problems = append(problems, remove(namespace.Port(attachment.Network)))
	}
	return errors.Join(problems...)
}

// IsAttached reports whether all devices of a namespace exist and are connected.
func IsAttached(namespace netplan.Namespace) bool {
	for _, attachment := range namespace.Attachments {
		device, err := netlink.LinkByName(namespace.Port(attachment.Network))
		if err != nil || device.Attrs().RawFlags&unix.IFF_LOWER_UP == 0 {
			return false
		}
	}
	return true
}

func remove(name string) error {
	device, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	err = netlink.LinkDel(device)
	if errors.Is(err, unix.ENODEV) {
		return nil // removed with its namespace meanwhile
	}
	return err
}

// setConf sets an IPv4 setting of one device by netlink, since /proc/sys is read-only in a container.
func setConf(device netlink.Link, index uint16, value uint32) error {
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(device.Attrs().Index)
	request.AddData(message)
	family := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	conf := family.AddRtAttr(unix.AF_INET, nil).AddRtAttr(attrInetConf, nil)
	conf.AddRtAttr(int(index), nl.Uint32Attr(value))
	request.AddData(family)
	if _, err := request.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("device %s: IPv4 setting %d cannot be set: %w", device.Attrs().Name, index, err)
	}
	return nil
}
