package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// inside runs a function in the network namespace of a process.
func inside(t *testing.T, process int, work func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread exits with the goroutine
		descriptor, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", process), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(unix.Setns(descriptor, unix.CLONE_NEWNET), unix.Close(descriptor))
		}
		if err == nil {
			err = work()
		}
		done <- err
	}()
	must(t, <-done)
}

func handleOf(t *testing.T, process int) *netlink.Handle {
	t.Helper()
	namespace, err := netns.GetFromPid(process)
	must(t, err)
	defer namespace.Close()
	handle, err := netlink.NewHandleAt(namespace)
	must(t, err)
	t.Cleanup(handle.Close)
	return handle
}

func up(t *testing.T, handle *netlink.Handle, name string, addresses ...string) netlink.Link {
	t.Helper()
	device, err := handle.LinkByName(name)
	must(t, err)
	for _, text := range addresses {
		address, err := netlink.ParseAddr(text)
		must(t, err)
		must(t, handle.AddrAdd(device, address))
	}
	must(t, handle.LinkSetUp(device))
	return device
}

// publicAddresses respond in the emulated internet; no container may reach forbiddenAddresses.
var (
	publicAddresses    = []string{"93.184.216.34", "93.184.216.35", "8.8.4.4"}
	forbiddenAddresses = []string{"192.0.2.2", "10.96.0.1", "10.96.0.10", "10.244.0.9", "169.254.169.254", "168.63.129.16", "192.88.99.1", "100.64.0.1", "198.18.0.1", "172.17.0.1", "192.168.1.1", "240.0.0.1"}
)

// deniedRanges are the public ranges of the node and an API server.
var deniedRanges = []string{"192.0.2.2/32", "93.184.220.0/24"}

// connectWorld creates the uplink and the emulated internet: each of its addresses responds
// on TCP and UDP 80 and 443.
func (p *pod) connectWorld() {
	outside := handleOf(p.t, p.world)
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "w0"
	pair := netlink.NewVeth(attributes)
	pair.PeerName, pair.PeerNamespace = "eth0", netlink.NsPid(p.holder)
	must(p.t, outside.LinkAdd(pair))
	addresses := []string{"127.0.0.1/8"}
	for _, one := range append(append([]string{}, publicAddresses...), forbiddenAddresses...) {
		if one != "10.244.0.9" {
			addresses = append(addresses, one+"/32")
		}
	}
	addresses = append(addresses, "93.184.220.1/32")
	up(p.t, outside, "lo", addresses[1:]...)
	up(p.t, outside, "w0", "10.244.0.1/24", "10.244.0.9/24")
	own := handleOf(p.t, p.holder)
	up(p.t, own, "lo")
	device := up(p.t, own, "eth0", podIP+"/24")
	must(p.t, own.RouteAdd(&netlink.Route{LinkIndex: device.Attrs().Index, Gw: net.ParseIP("10.244.0.1")}))
	inside(p.t, p.holder, func() error {
		// A Pod's namespace forwards nothing by default; ports below 1024 are free in it.
		return errors.Join(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0),
			os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0))
	})
	for _, address := range append([]string{"10.244.0.9", "93.184.220.1"}, append(publicAddresses, forbiddenAddresses...)...) {
		if address == "240.0.0.1" {
			continue // the kernel takes no packets for the reserved range
		}
		for _, port := range []string{"80", "443"} {
			p.echo(p.world, address, port)
		}
	}
}

// echo serves TCP and UDP at an address of a process's network namespace.
func (p *pod) echo(process int, address, port string) {
	inside(p.t, process, func() error {
		listener, err := net.Listen("tcp4", net.JoinHostPort(address, port))
		if err != nil {
			if address == "10.244.0.9" {
				return nil
			}
			return fmt.Errorf("%s: %w", address, err)
		}
		packets, err := net.ListenPacket("udp4", net.JoinHostPort(address, port))
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		p.t.Cleanup(func() {
			_ = listener.Close()
			_ = packets.Close()
		})
		go answerStreams(listener)
		go answerPackets(packets)
		return nil
	})
}

func answerStreams(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer connection.Close()
			buffer := make([]byte, 1)
			if _, err := connection.Read(buffer); err == nil {
				_, _ = connection.Write(buffer)
			}
		}()
	}
}

func answerPackets(packets net.PacketConn) {
	buffer := make([]byte, 1500)
	for {
		count, from, err := packets.ReadFrom(buffer)
		if err != nil {
			return
		}
		_, _ = packets.WriteTo(buffer[:count], from)
	}
}
