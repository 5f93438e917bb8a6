// Package network is `guest net`: the network of an enclave. It runs in the
// Pod's own namespaces with NET_ADMIN as its only capability.
//
// In this order it loads the packet filter, creates the bridges, serves DNS, listens for
// launchers and refreshes the allowlists. If it is restarted while containers run, it
// adopts what exists.
package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"cloister.dev/guest/internal/foundation/atomicfile"
	"cloister.dev/guest/internal/network/allowlist"
	"cloister.dev/guest/internal/network/dns"
	"cloister.dev/guest/internal/network/firewall"
	"cloister.dev/guest/internal/network/link"
	"cloister.dev/guest/internal/network/netplan"
)

const (
	namePort        = 53
	firstResolution = 5 * time.Second
	statusEvery     = 5 * time.Second
)

// Network is a running `guest net`.
type Network struct {
	plan    netplan.Plan
	filter  *firewall.Firewall
	lists   *allowlist.Manager
	sockets *sockets
	log     *slog.Logger
}

// Run runs the network of a plan until the context is done. Bridges, devices and filter
// stay when it returns: the containers keep running.
func Run(ctx context.Context, plan netplan.Plan, log *slog.Logger) error {
	sources, err := probeSources(plan)
	if err != nil {
		return err
	}
	plan.ProbeSources = sources
	running := &Network{plan: plan, filter: firewall.New(plan), log: log}
	if err := running.setUp(); err != nil {
		return err
	}
	server := dns.NewServer(plan, dns.Upstream{Servers: plan.Resolver.Upstream}, running.lists)
	if err := server.Start(netip.AddrPortFrom(netplan.Nameserver, namePort)); err != nil {
		return err
	}
	first, cancel := context.WithTimeout(ctx, firstResolution)
	err = running.lists.Refresh(first)
	cancel()
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- running.sockets.serve(ctx) }()
	go func() { failed <- running.refreshLoop(ctx) }()
	err = running.writeStatusLoop(ctx, failed)
	return errors.Join(err, server.Stop(), running.sockets.close())
}

// setUp creates the filter, bridges and sockets.
func (n *Network) setUp() error {
	if err := checkUplink(n.plan); err != nil {
		return err
	}
	if err := n.filter.Apply(); err != nil {
		return err
	}
	if err := link.ConfigureBridges(n.plan); err != nil {
		return err
	}
	lists, err := allowlist.New(n.plan, dns.Upstream{Servers: n.plan.Resolver.Upstream}, n.filter, time.Now, n.log)
	if err != nil {
		return err
	}
	n.lists = lists
	n.sockets, err = openSockets(n.plan, n.log)
	return err
}

// checkUplink refuses a plan with a range that overlaps the Pod's own network.
func checkUplink(plan netplan.Plan) error {
	device, err := netlink.LinkByName(plan.Uplink)
	if err != nil {
		return fmt.Errorf("uplink %s: %w", plan.Uplink, err)
	}
	addresses, err := netlink.AddrList(device, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("uplink %s: %w", plan.Uplink, err)
	}
	for _, address := range addresses {
		own, valid := netip.AddrFromSlice(address.IP.To4())
		if !valid {
			continue
		}
		bits, _ := address.Mask.Size()
		around := netip.PrefixFrom(own, bits).Masked()
		for index, network := range plan.Networks {
			if network.Subnet.Overlaps(around) {
				return fmt.Errorf("networks[%d].subnet: %s overlaps %s, the Pod's own network; give the network another range",
					index, network.Subnet, around)
			}
		}
	}
	return nil
}

func (n *Network) refreshLoop(ctx context.Context) error {
	ticker := time.NewTicker(n.plan.Refresh())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := n.lists.Refresh(ctx); err != nil {
			return err
		}
		n.sockets.storeAll()
	}
}

// writeStatusLoop writes the status file whenever the status has changed. A failure of any
// part terminates the process: after the restart it adopts what exists.
func (n *Network) writeStatusLoop(ctx context.Context, failed <-chan error) error {
	ticker := time.NewTicker(statusEvery)
	defer ticker.Stop()
	written := ""
	for {
		text, err := n.status().encode()
		if err != nil {
			return err
		}
		if text != written {
			if err := atomicfile.Write(n.plan.StatusFile, []byte(text), 0o644); err != nil {
				return err
			}
			written = text
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if err != nil {
				return err
			}
		case <-n.sockets.changed:
		case <-ticker.C:
		}
	}
}

func (n *Network) status() Status {
	return Status{Version: netplan.Version, Ready: true, FiltersBridges: n.filter.FiltersBridges(),
		Namespaces: n.sockets.states(), Allowlists: n.lists.State()}
}
