package network

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"cloister.dev/guest/internal/network/netplan"
)

// hostVariable has the addresses of the node, comma-separated: status.hostIPs of the Pod.
const hostVariable = "HOST_IPS"

// probeSources returns the IPv4 addresses from which the kubelet may reach the Pod: those of the
// plan, those of the node, and the gateways of the uplink, since many network plug-ins connect a
// Pod to its node through them.
func probeSources(plan netplan.Plan) ([]netip.Addr, error) {
	found := plan.ProbeSources
	for _, text := range strings.Split(os.Getenv(hostVariable), ",") {
		if text == "" {
			continue
		}
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", hostVariable, err)
		}
		found = append(found, address)
	}
	device, err := netlink.LinkByName(plan.Uplink)
	if err != nil {
		return nil, fmt.Errorf("uplink %s: %w", plan.Uplink, err)
	}
	routes, err := netlink.RouteList(device, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("uplink %s: its routes cannot be read: %w", plan.Uplink, err)
	}
	for _, route := range routes {
		if gateway, valid := netip.AddrFromSlice(route.Gw.To4()); valid {
			found = append(found, gateway)
		}
	}
	return found, nil
}
