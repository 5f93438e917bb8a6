package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"cloister.dev/guest/internal/network/netplan"
)

var matrixPlans = flag.Int("plans", 6, "number of random plans of the packet matrix")

const (
	reachable   = 30000 // milliseconds for a path that must be open
	unreachable = 1000  // and for one that must not
)

type target struct {
	Network, Address string
	Milliseconds     int
	open             bool
	what             string
}

// randomPlan returns a plan with up to four networks and five containers; the first container is the shim's target.
func randomPlan(random *rand.Rand) netplan.Plan {
	spec := netplan.Plan{
		Networks: []netplan.Network{{Name: netplan.ShimNetwork, Egress: netplan.EgressClosed, Subnet: netip.MustParsePrefix("172.31.255.0/30")}},
		Inbound:  []uint16{shimPort},
		Resolver: netplan.Resolver{Upstream: []netip.AddrPort{netip.MustParseAddrPort(upstream + ":53")}, Refused: []string{"cluster.local"}},
	}
	for _, text := range deniedRanges {
		spec.Denied = append(spec.Denied, netip.MustParsePrefix(text))
	}
	egresses := []string{netplan.EgressClosed, netplan.EgressAllowlist, netplan.EgressOpen}
	for index := range 1 + random.IntN(4) {
		network := netplan.Network{Name: fmt.Sprintf("network-%d", index), Egress: egresses[random.IntN(3)],
			Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 30, byte(index), 0}), 24)}
		if network.Egress == netplan.EgressAllowlist {
			network.Allow = []string{"allowed.example"}
		}
		spec.Networks = append(spec.Networks, network)
	}
	for index := range 2 + random.IntN(4) {
		namespace := netplan.Namespace{Name: fmt.Sprintf("c%d", index), Containers: []string{fmt.Sprintf("c%d", index)}, Attachments: []netplan.Attachment{}}
		if index == 0 {
			namespace.Attachments = append(namespace.Attachments, netplan.Attachment{Network: netplan.ShimNetwork, Address: netip.MustParseAddr("172.31.255.2")})
			spec.Sidecars = []netplan.Sidecar{{Name: "shim", UID: shimUID, Destinations: []netplan.Destination{
				{Address: netip.MustParseAddr("172.31.255.2"), Port: appPort}, {Address: netip.MustParseAddr("10.244.0.9"), Port: 443}}}}
		}
		exits := 0
		for number, network := range spec.Networks[1:] {
			if random.IntN(2) == 0 || (network.Egress != netplan.EgressClosed && exits > 0) {
				continue
			}
			if network.Egress != netplan.EgressClosed {
				exits++
			}
			namespace.Attachments = append(namespace.Attachments, netplan.Attachment{Network: network.Name,
				Address: netip.AddrFrom4([4]byte{172, 30, byte(number), byte(10 + index)})})
		}
		spec.Namespaces = append(spec.Namespaces, namespace)
	}
	return spec
}

// targetsOf returns all targets of a container, with the expected reachability.
func targetsOf(spec netplan.Plan, asking netplan.Namespace) []target {
	targets := []target{}
	add := func(open bool, what, address string, port int) {
		for _, network := range []string{"tcp4", "udp4"} {
			milliseconds := unreachable
			if open {
				milliseconds = reachable
			}
			targets = append(targets, target{Network: network, Address: address + ":" + strconv.Itoa(port), Milliseconds: milliseconds, open: open, what: what})
		}
	}
	add(true, "itself", "127.0.0.1", appPort)
	networks := map[string]bool{}
	for _, attachment := range asking.Attachments {
		networks[attachment.Network] = true
	}
	for _, other := range spec.Namespaces {
		for _, attachment := range other.Attachments {
			own := other.Name == asking.Name
			add(own || networks[attachment.Network], "container "+other.Name+" on "+attachment.Network, attachment.Address.String(), appPort)
		}
	}
	for _, network := range spec.Networks {
		for _, port := range []int{shimPort, otherTCP, 22} {
			add(false, "the Pod on "+network.Name, network.Gateway().Addr().String(), port)
		}
	}
	for _, address := range []string{podIP, netplan.Nameserver.String()} {
		add(false, "the Pod", address, shimPort)
		add(false, "the Pod", address, otherTCP)
	}
	exit, hasExit := spec.EgressNetwork(asking)
	for _, address := range publicAddresses {
		isOpen := hasExit && (exit.Egress == netplan.EgressOpen || address == publicAddresses[0])
		add(isOpen, "the internet", address, 80)
		add(isOpen, "the internet", address, 443)
	}
	for _, address := range append([]string{"93.184.220.1"}, forbiddenAddresses...) {
		add(false, "a forbidden address", address, 80)
		add(false, "a forbidden address", address, 443)
	}
	return append(targets, target{Network: "tcp6", Address: "[2001:db8::1]:80", Milliseconds: unreachable, what: "IPv6"},
		target{Network: "tcp6", Address: "[fe80::1%eth0]:8080", Milliseconds: unreachable, what: "link-local IPv6"})
}

// tryTargets tries the targets from a process's network namespace and reports each unexpected result.
func tryTargets(t *testing.T, process int, from string, targets []target, extra ...string) int {
	t.Helper()
	order, err := json.Marshal(targets)
	must(t, err)
	line := append([]string{"-t", strconv.Itoa(process), "-n", "--", tools + "/testprogram", "reach", string(order)}, extra...)
	output, err := exec.Command("nsenter", line...).Output()
	must(t, err)
	var reached []bool
	must(t, json.Unmarshal(output, &reached))
	for index, one := range targets {
		if reached[index] != one.open {
			t.Errorf("%s -> %s %s (%s): reached %t, expected %t", from, one.Network, one.Address, one.what, reached[index], one.open)
		}
	}
	return len(targets)
}

// startServers starts a container for each namespace of the plan, and the Pod's own listeners.
func startServers(t *testing.T, run *pod) map[string]*container {
	t.Helper()
	started := map[string]*container{}
	for _, namespace := range run.plan.Namespaces {
		for index, name := range namespace.Containers {
			started[name] = run.start(document(name, "serve", "/tmp/ready", strconv.Itoa(appPort+index)))
		}
	}
	for _, one := range started {
		one.file("tmp/ready")
	}
	for _, port := range []string{strconv.Itoa(shimPort), strconv.Itoa(otherTCP), "22"} {
		run.echo(run.holder, "0.0.0.0", port)
	}
	return started
}

// spec: 44.5, 44.6, 44.8, 46.10
func TestPacketMatrix(t *testing.T) {
	t.Parallel()
	needNamespaces(t)
	for seed := range *matrixPlans {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			run := newPod(t, seed%3 == 2, randomPlan(rand.New(rand.NewPCG(uint64(seed), 7))))
			run.serveNames(standardZone())
			run.startNetwork()
			started := startServers(t, run)
			tried := 0
			for _, namespace := range run.plan.Namespaces {
				tried += tryTargets(t, started[namespace.Name].first, namespace.Name, targetsOf(run.plan, namespace))
			}
			tried += tryPod(t, run)
			t.Logf("%d paths tried", tried)
			if t.Failed() {
				output, _ := exec.Command("nsenter", "-t", strconv.Itoa(run.holder), "-n", "nft", "list", "ruleset").CombinedOutput()
				t.Logf("plan %+v\n%s\n%s", run.plan, output, run.log)
			}
		})
	}
}

// tryPod tries the targets of processes in the Pod's own namespace and outside.
func tryPod(t *testing.T, run *pod) int {
	t.Helper()
	shim, other := []target{}, []target{}
	for _, namespace := range run.plan.Namespaces {
		for _, attachment := range namespace.Attachments {
			address := attachment.Address.String() + ":" + strconv.Itoa(appPort)
			isTarget := attachment.Network == netplan.ShimNetwork
			shim = append(shim, target{Network: "tcp4", Address: address, Milliseconds: chosen(isTarget), open: isTarget, what: "container"})
			other = append(other, target{Network: "tcp4", Address: address, Milliseconds: unreachable, what: "container"})
		}
	}
	for _, address := range []string{"10.244.0.9:443", "10.244.0.9:80", "8.8.4.4:80", "10.96.0.1:443", upstream + ":80"} {
		isOpen := address == "10.244.0.9:443"
		shim = append(shim, target{Network: "tcp4", Address: address, Milliseconds: chosen(isOpen), open: isOpen, what: "outside"})
		other = append(other, target{Network: "tcp4", Address: address, Milliseconds: unreachable, what: "outside"})
	}
	tried := tryTargets(t, run.holder, "the shim", shim, run.user(shimUID))
	tried += tryTargets(t, run.holder, "an unwrapped process", other)
	tried += tryTargets(t, run.holder, "an unwrapped process of another user", other, run.user(1000))
	outside := []target{
		{Network: "tcp4", Address: podIP + ":" + strconv.Itoa(shimPort), Milliseconds: reachable, open: true, what: "the shim"},
		{Network: "udp4", Address: podIP + ":" + strconv.Itoa(shimPort), Milliseconds: unreachable, what: "the shim's port by UDP"},
		{Network: "tcp4", Address: podIP + ":" + strconv.Itoa(otherTCP), Milliseconds: unreachable, what: "another port of the Pod"},
		{Network: "tcp4", Address: podIP + ":53", Milliseconds: unreachable, what: "the name server"},
	}
	route := exec.Command("nsenter", "-t", strconv.Itoa(run.world), "-n", tools+"/testprogram", "route", "172.16.0.0/12", podIP)
	must(t, route.Run())
	for _, namespace := range run.plan.Namespaces {
		for _, attachment := range namespace.Attachments {
			outside = append(outside, target{Network: "tcp4", Address: attachment.Address.String() + ":" + strconv.Itoa(appPort), Milliseconds: unreachable, what: "container"})
		}
	}
	return tried + tryTargets(t, run.world, "the outside", outside)
}

func chosen(open bool) int {
	if open {
		return reachable
	}
	return unreachable
}

func TestContainersOfAnOldFileShareOneNamespace(t *testing.T) {
	t.Parallel()
	shared := netplan.Plan{
		Networks: []netplan.Network{{Name: "tenant", Egress: netplan.EgressOpen, Subnet: netip.MustParsePrefix("172.30.0.0/24")}},
		Namespaces: []netplan.Namespace{{Name: "tenant", Containers: []string{"one", "two", "three"},
			Attachments: []netplan.Attachment{{Network: "tenant", Address: netip.MustParseAddr("172.30.0.2")}}}},
		Inbound: []uint16{shimPort},
	}
	run := newPod(t, false, shared)
	fdStore := run.startFDStore()
	run.startNetwork()
	started := startServers(t, run)
	targets := []target{}
	for index := range 3 {
		targets = append(targets, target{Network: "tcp4", Address: "127.0.0.1:" + strconv.Itoa(appPort+index), Milliseconds: reachable, open: true, what: "a neighbour"})
	}
	targets = append(targets, target{Network: "tcp4", Address: "8.8.4.4:80", Milliseconds: reachable, open: true, what: "the internet"},
		target{Network: "tcp4", Address: "10.96.0.1:80", Milliseconds: unreachable, what: "the cluster"})
	tryTargets(t, started["two"].first, "two", targets)

	// After the exit of guest net and of a container, the others keep running, and the container returns to the same namespace.
	run.killNetwork()
	tryTargets(t, started["two"].first, "two without guest net", targets)
	run.startNetwork()
	started["one"].kill()
	again := run.start(document("one", "serve", "/tmp/again", strconv.Itoa(appPort)))
	again.file("tmp/again")
	tryTargets(t, started["three"].first, "three", targets)
	tryTargets(t, again.first, "one, restarted", targets)

	// Without fd store the namespace is lost with guest net: the container is refused rather than given another network.
	run.killFDStore(fdStore)
	run.killNetwork()
	run.startNetwork()
	again.kill()
	about := document("one", "serve", "/tmp/never", "1")
	refused := run.start(about)
	if code := refused.wait(); code != 125 || !strings.Contains(refused.problem.String(), "relaunch the enclave") {
		t.Errorf("exited with %d: %s", code, refused.problem)
	}
	if exists(run.root("one") + "/tmp/never") {
		t.Error("the container ran in its own namespace")
	}
}
