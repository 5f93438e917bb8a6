// Package link creates and configures network devices: bridges and veth pairs on the Pod's
// side, addresses and routes on the container's.
package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/network/netattach"
)

// ConfigureContainer sets the addresses and routes of the calling thread's namespace, as
// received from `guest net`. The launcher calls it before it drops its privileges.
func ConfigureContainer(interfaces []netattach.Interface, nameserver netip.Addr) error {
	if err := setUp("lo"); err != nil {
		return err
	}
	for index, one := range interfaces {
		device, err := netlink.LinkByName(one.Name)
		if err != nil {
			return fmt.Errorf("device %s: %w", one.Name, err)
		}
		if err := netlink.AddrReplace(device, &netlink.Addr{IPNet: ipNet(one.Address)}); err != nil {
			return fmt.Errorf("device %s: the address %s cannot be set: %w", one.Name, one.Address, err)
		}
		if err := setUp(one.Name); err != nil {
			return err
		}
		if one.Default {
			if err := addRoute(device, nil, one.Gateway); err != nil {
				return err
			}
		}
		if index == 0 && nameserver.IsValid() {
			if err := addRoute(device, ipNet(netip.PrefixFrom(nameserver, nameserver.BitLen())), one.Gateway); err != nil {
				return err
			}
		}
	}
	return nil
}

func setUp(name string) error {
	device, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("device %s: %w", name, err)
	}
	// Without this mode the device would get a link-local IPv6 address.
	if name != "lo" {
		if err := netlink.LinkSetIP6AddrGenMode(device, nl.IN6_ADDR_GEN_MODE_NONE); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return fmt.Errorf("device %s: IPv6 cannot be disabled: %w", name, err)
		}
	}
	if err := netlink.LinkSetUp(device); err != nil {
		return fmt.Errorf("device %s cannot be set up: %w", name, err)
	}
	return nil
}

func addRoute(device netlink.Link, to *net.IPNet, through netip.Addr) error {
	route := netlink.Route{LinkIndex: device.Attrs().Index, Dst: to, Gw: through.AsSlice()}
	if err := netlink.RouteReplace(&route); err != nil {
		return fmt.Errorf("the route through %s cannot be set: %w", through, err)
	}
	return nil
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
