package main

import (
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"cloister.dev/guest/internal/network/netplan"
)

type found struct {
	Code      string
	Addresses []string
	Records   int
}

// ask queries the enclave's name server from a container.
func ask(t *testing.T, from *container, network, name, kind string) found {
	t.Helper()
	output, code := from.exec(false, "/bin/testprogram", "lookup", network, netplan.Nameserver.String()+":53", name, kind)
	if code != 0 {
		t.Fatalf("lookup of %s exited with %d: %s", name, code, output)
	}
	var result found
	must(t, json.Unmarshal([]byte(output), &result))
	slices.Sort(result.Addresses)
	return result
}

// mixedPlan returns a plan with a network of each kind.
func mixedPlan() netplan.Plan {
	at := func(network, address string) netplan.Attachment {
		return netplan.Attachment{Network: network, Address: netip.MustParseAddr(address)}
	}
	return netplan.Plan{
		Networks: []netplan.Network{
			{Name: "inner", Egress: netplan.EgressClosed, Subnet: netip.MustParsePrefix("172.30.0.0/24")},
			{Name: "some", Egress: netplan.EgressAllowlist, Allow: []string{"allowed.example", "alias.example", "rebind.example"}, Subnet: netip.MustParsePrefix("172.30.1.0/24")},
			{Name: "all", Egress: netplan.EgressOpen, Subnet: netip.MustParsePrefix("172.30.2.0/24")},
		},
		Namespaces: []netplan.Namespace{
			{Name: "closed", Containers: []string{"closed"}, Attachments: []netplan.Attachment{at("inner", "172.30.0.2")}},
			{Name: "Listed_1", Containers: []string{"Listed_1"}, Attachments: []netplan.Attachment{at("inner", "172.30.0.3"), at("some", "172.30.1.3")}},
			{Name: "open", Containers: []string{"open"}, Attachments: []netplan.Attachment{at("all", "172.30.2.4")}},
			{Name: "none", Containers: []string{"none"}, Attachments: []netplan.Attachment{}},
		},
		Denied:   []netip.Prefix{netip.MustParsePrefix("192.0.2.2/32")},
		Resolver: netplan.Resolver{Upstream: []netip.AddrPort{netip.MustParseAddrPort(upstream + ":53")}, Refused: []string{"cluster.example"}},
		Inbound:  []uint16{shimPort}, RefreshSeconds: 1,
	}
}

// spec: 12.12, 44.4
func TestNamesAndAllowlists(t *testing.T) {
	t.Parallel()
	run := newPod(t, false, mixedPlan())
	served := standardZone()
	served.set("x.cluster.example.", "A 93.184.216.34")
	many := []string{}
	for number := range 60 {
		many = append(many, "A 93.184.217."+string(rune('0'+number/10))+string(rune('0'+number%10)))
	}
	served.set("many.example.", many[11:]...)
	run.serveNames(served)
	run.startNetwork()
	started := startServers(t, run)
	for _, one := range []struct {
		from, name, kind, code string
		addresses              []string
	}{
		{"closed", "listed_1", "A", "NOERROR", []string{"172.30.0.3"}},
		{"closed", "closed", "A", "NOERROR", []string{"172.30.0.2"}},
		{"closed", "listed_1", "AAAA", "NOERROR", nil},
		{"closed", "open", "A", "NXDOMAIN", nil},
		{"closed", "open.example", "A", "NXDOMAIN", nil},
		{"Listed_1", "closed", "A", "NOERROR", []string{"172.30.0.2"}},
		{"Listed_1", "allowed.example", "A", "NOERROR", []string{"93.184.216.34"}},
		{"Listed_1", "alias.example", "A", "NOERROR", []string{"93.184.216.34"}},
		{"Listed_1", "open.example", "A", "NXDOMAIN", nil},
		{"Listed_1", "rebind.example", "A", "NOERROR", []string{"8.8.4.4"}},
		{"open", "open.example", "A", "NOERROR", []string{"8.8.4.4"}},
		{"open", "inside.example", "A", "NOERROR", nil},
		{"open", "x.cluster.example", "A", "NXDOMAIN", nil},
		{"open", "absent.example", "A", "NXDOMAIN", nil},
		{"open", "closed", "A", "NXDOMAIN", nil},
		{"open", "open.example", "AAAA", "NOERROR", nil},
	} {
		for _, network := range []string{"udp", "tcp"} {
			got := ask(t, started[one.from], network, one.name, one.kind)
			if got.Code != one.code || !slices.Equal(got.Addresses, one.addresses) && len(got.Addresses)+len(one.addresses) > 0 {
				t.Errorf("%s queries %s %s by %s: %+v, want %s %v", one.from, one.name, one.kind, network, got, one.code, one.addresses)
			}
		}
	}
	if got := ask(t, started["open"], "tcp", "many.example", "A"); len(got.Addresses) != 49 {
		t.Errorf("a long answer has %d addresses", len(got.Addresses))
	}
	allowedPaths(t, run, started, served)
}

// allowedPaths tests an allowlist over a change, a resolver failure and the recovery.
func allowedPaths(t *testing.T, run *pod, started map[string]*container, served *zone) {
	t.Helper()
	listed := started["Listed_1"].first
	path := func(address string, open bool) target {
		return target{Network: "tcp4", Address: address + ":443", Milliseconds: chosen(open), open: open, what: "allowlist"}
	}
	tryTargets(t, listed, "listed", []target{path("93.184.216.34", true), path("93.184.216.35", false), path("192.0.2.2", false), path("10.96.0.1", false)})
	served.set("allowed.example.", "A 93.184.216.35")
	tryTargets(t, listed, "listed, after a change", []target{path("93.184.216.35", true)})
	served.fail(true)
	asked := served.count("allowed.example.")
	until(t, "two refreshes have failed", func() bool { return served.count("allowed.example.") >= asked+8 })
	tryTargets(t, listed, "listed, without resolver", []target{path("93.184.216.35", true)})
	run.killNetwork()
	tryTargets(t, listed, "listed, without guest net", []target{path("93.184.216.35", true), path("10.96.0.1", false)})
	run.startNetwork()
	tryTargets(t, listed, "listed, after a restart without resolver", []target{path("93.184.216.35", true), path("10.96.0.1", false)})
}

func TestEveryPartRecoversFromARestart(t *testing.T) {
	t.Parallel()
	run := newPod(t, true, onePlan("one", "two"))
	run.startFDStore()
	run.startNetwork()
	started := startServers(t, run)
	between := []target{{Network: "tcp4", Address: "172.30.0.11:8080", Milliseconds: reachable, open: true, what: "the neighbour"}}
	run.killNetwork()
	tryTargets(t, started["one"].first, "one, without guest net", between)
	run.startNetwork()
	tryTargets(t, started["one"].first, "one, after a restart", between)
	started["two"].kill()
	must(t, removeFile(run.root("two")+"/tmp/ready"))
	again := run.start(document("two", "serve", "/tmp/ready", "8080"))
	again.file("tmp/ready")
	tryTargets(t, started["one"].first, "one, after its neighbour's restart", between)
	if got := ask(t, started["one"], "udp", "two", "A"); !slices.Equal(got.Addresses, []string{"172.30.0.11"}) {
		t.Errorf("the neighbour is at %+v", got)
	}
}

// The port of the probes is only for the node: its address, or the Pod's gateway.
func TestOnlyTheNodeReachesThePortOfTheProbes(t *testing.T) {
	t.Parallel()
	plan := onePlan("app")
	plan.Probes, plan.Inbound = otherTCP, []uint16{shimPort}
	run := newPod(t, false, plan)
	run.startNetwork()
	for _, port := range []string{strconv.Itoa(otherTCP), strconv.Itoa(shimPort)} {
		run.echo(run.holder, podIP, port)
	}
	reaches := func(source string, port int, want bool) bool {
		reached := false
		inside(t, run.world, func() error {
			timeout := time.Duration(chosen(want)) * time.Millisecond
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: timeout}
			conn, err := dialer.Dial("tcp4", net.JoinHostPort(podIP, strconv.Itoa(port)))
			if err == nil {
				reached = true
				return conn.Close()
			}
			return nil
		})
		return reached
	}
	const gateway, another = "10.244.0.1", "10.244.0.9"
	for _, path := range []struct {
		source string
		port   int
		want   bool
	}{{gateway, otherTCP, true}, {another, otherTCP, false}, {another, shimPort, true}} {
		if got := reaches(path.source, path.port, path.want); got != path.want {
			t.Errorf("%s to port %d: %t", path.source, path.port, got)
		}
	}
}
