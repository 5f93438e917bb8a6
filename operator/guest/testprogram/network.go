package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Target is one address to reach.
type Target struct {
	// Network is tcp4, tcp6, udp4 or udp6.
	Network string
	// Address is host:port.
	Address string
	// Milliseconds bounds the attempts.
	Milliseconds int
	// Connect means that a connection is enough; else the target must echo.
	Connect bool
}

// serve echoes on TCP and UDP at ports of all addresses, or at an address and port: with
// several addresses, a UDP reply must come from the one of the request. It writes to a file
// when it listens.
func serve(arguments []string) error {
	for _, place := range arguments[1:] {
		if !strings.Contains(place, ":") {
			place = ":" + place
		}
		family := "4"
		if strings.HasPrefix(place, "[") {
			family = "6"
		}
		listener, err := net.Listen("tcp"+family, place)
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
		packets, err := net.ListenPacket("udp"+family, place)
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

// reach tries all targets concurrently, each until it responds or times out, and prints which
// responded. With a second argument it switches to that user first.
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
	if target.Connect {
		return nil
	}
	if err := connection.SetDeadline(time.Now().Add(min(timeout, 500*time.Millisecond))); err != nil {
		return err
	}
	if _, err := connection.Write([]byte("x")); err != nil {
		return err
	}
	_, err = io.ReadFull(connection, make([]byte, 1))
	return err
}

// lookup queries a name server and prints the response code and the addresses: NETWORK SERVER NAME TYPE.
func lookup(arguments []string) error {
	question := new(dns.Msg)
	question.SetQuestion(dns.Fqdn(arguments[2]), dns.StringToType[arguments[3]])
	client := dns.Client{Net: arguments[0], Timeout: 10 * time.Second}
	response, _, err := client.Exchange(question, arguments[1])
	if err != nil {
		return err
	}
	addresses := []string{}
	for _, record := range response.Answer {
		if one, isAddress := record.(*dns.A); isAddress {
			addresses = append(addresses, one.A.String())
		}
	}
	return show(struct {
		Code      string
		Addresses []string
		Records   int
	}{dns.RcodeToString[response.Rcode], addresses, len(response.Answer)})
}

// lookups queries the enclave's name server for names, and prints the addresses of each; a
// name without addresses is left out.
func lookups(arguments []string) error {
	client := dns.Client{Timeout: 10 * time.Second}
	found := map[string][]string{}
	for _, name := range arguments {
		question := new(dns.Msg)
		question.SetQuestion(dns.Fqdn(name), dns.TypeA)
		response, _, err := client.Exchange(question, "169.254.20.53:53")
		if err != nil {
			found[name] = nil
			continue
		}
		found[name] = []string{}
		for _, record := range response.Answer {
			if one, isAddress := record.(*dns.A); isAddress {
				found[name] = append(found[name], one.A.String())
			}
		}
	}
	return show(found)
}

// route adds a route: a range and its gateway.
func route(arguments []string) error {
	_, to, err := net.ParseCIDR(arguments[0])
	if err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{Dst: to, Gw: net.ParseIP(arguments[1])})
}

var errOpen = errors.New("the escape succeeded")

func rawSocket(family, kind, protocol int) error {
	descriptor, err := unix.Socket(family, kind, protocol)
	if err == nil {
		unix.Close(descriptor)
		return errOpen
	}
	return err
}

// status shows the status code of a response.
func status(arguments []string) error {
	response, err := (&http.Client{Timeout: 90 * time.Second}).Get(arguments[0])
	if err != nil {
		return err
	}
	fmt.Println(response.StatusCode)
	return response.Body.Close()
}
