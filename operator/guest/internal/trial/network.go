package main

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Target is one thing to be reached.
type Target struct {
	// Network is tcp, tcp6 or udp.
	Network string
	// Address is host:port.
	Address string
	// Milliseconds bounds the attempts.
	Milliseconds int
}

// serve answers on TCP and UDP at ports of all addresses; it writes to a file when it listens.
func serve(arguments []string) error {
	for _, port := range arguments[1:] {
		listener, err := net.Listen("tcp4", ":"+port)
		if err != nil {
			return err
		}
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				go func() {
					defer connection.Close()
					_, _ = io.Copy(connection, connection)
				}()
			}
		}()
		packets, err := net.ListenPacket("udp4", ":"+port)
		if err != nil {
			return err
		}
		go echo(packets)
	}
	if arguments[0] != "" {
		if err := write([]string{arguments[0], "ready"}); err != nil {
			return err
		}
	}
	return pause(nil)
}

func echo(packets net.PacketConn) {
	buffer := make([]byte, 1500)
	for {
		count, from, err := packets.ReadFrom(buffer)
		if err != nil {
			return
		}
		_, _ = packets.WriteTo(buffer[:count], from)
	}
}

// reach tries all targets at once, each until it answers or its time is up, and
// shows which answered. With a second argument it takes that user first.
func reach(arguments []string) error {
	var targets []Target
	if err := json.Unmarshal([]byte(arguments[0]), &targets); err != nil {
		return err
	}
	if len(arguments) > 1 {
		uid, err := strconv.Atoi(arguments[1])
		if err != nil {
			return err
		}
		if err := syscall.Setuid(uid); err != nil {
			return err
		}
	}
	results := make([]bool, len(targets))
	var group sync.WaitGroup
	for index, target := range targets {
		group.Go(func() {
			for end := time.Now().Add(time.Duration(target.Milliseconds) * time.Millisecond); !results[index] && time.Now().Before(end); {
				results[index] = try(target, min(time.Until(end), 2*time.Second)) == nil
				if !results[index] {
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	group.Wait()
	return show(results)
}

func try(target Target, timeout time.Duration) error {
	connection, err := net.DialTimeout(target.Network, target.Address, timeout)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(min(timeout, 500*time.Millisecond))); err != nil {
		return err
	}
	if _, err := connection.Write([]byte("x")); err != nil {
		return err
	}
	_, err = io.ReadFull(connection, make([]byte, 1))
	return err
}

// lookup asks a name server and shows the code and the addresses: NETWORK SERVER NAME TYPE.
func lookup(arguments []string) error {
	question := new(dns.Msg)
	question.SetQuestion(dns.Fqdn(arguments[2]), dns.StringToType[arguments[3]])
	client := dns.Client{Net: arguments[0], Timeout: 10 * time.Second}
	answer, _, err := client.Exchange(question, arguments[1])
	if err != nil {
		return err
	}
	addresses := []string{}
	for _, record := range answer.Answer {
		if one, isAddress := record.(*dns.A); isAddress {
			addresses = append(addresses, one.A.String())
		}
	}
	return show(struct {
		Code      string
		Addresses []string
		Records   int
	}{dns.RcodeToString[answer.Rcode], addresses, len(answer.Answer)})
}

// route adds a route: a range and where it leads.
func route(arguments []string) error {
	_, to, err := net.ParseCIDR(arguments[0])
	if err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{Dst: to, Gw: net.ParseIP(arguments[1])})
}

var errTaken = errors.New("a door is open")

func rawSocket(family, kind, protocol int) error {
	descriptor, err := unix.Socket(family, kind, protocol)
	if err == nil {
		unix.Close(descriptor)
		return errTaken
	}
	return err
}
