package netplan

import (
	"net/netip"
	"strings"
	"testing"

	"cloister.dev/guest/internal/foundation/unmeasured"
)

func clusterValues() unmeasured.Cluster {
	return unmeasured.Cluster{Block: blocks[0], Denied: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Resolvers: []netip.AddrPort{netip.MustParseAddrPort("10.96.0.10:53")}, Refused: []string{"cluster.local"},
		API: []netip.Addr{netip.MustParseAddr("10.96.0.80")}}
}

// measuredPlan is a plan as it is measured.
func measuredPlan() Plan {
	plan := valid()
	plan.Denied = nil
	plan.Sidecars = []Sidecar{{Name: "shim", UID: 1}, {Name: "gate", UID: 2, APIPort: 443}}
	return plan
}

func TestWhatTheClusterTellsCompletesAPlan(t *testing.T) {
	plan := measuredPlan()
	got, err := plan.complete(clusterValues())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Sidecars[0].Destinations) != 0 || len(got.Sidecars[1].Destinations) != 1 || got.Sidecars[1].Destinations[0].Port != 443 {
		t.Errorf("%+v", got.Sidecars)
	}
	if !got.Denies(netip.MustParseAddr("10.1.2.3")) || len(got.Resolver.Upstream) != 1 || len(plan.Sidecars[1].Destinations) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestNetworksMoveToAnotherBlock(t *testing.T) {
	cluster := clusterValues()
	cluster.Block = netip.MustParsePrefix("192.168.0.0/16")
	got, err := measuredPlan().complete(cluster)
	if err != nil {
		t.Fatal(err)
	}
	for index, want := range []string{"172.31.255.0/30", "192.168.0.0/24", "192.168.1.0/24"} {
		if got.Networks[index].Subnet.String() != want {
			t.Errorf("network %d: %s, want %s", index, got.Networks[index].Subnet, want)
		}
	}
	for index, want := range []string{"172.31.255.2", "192.168.0.2"} {
		if address := got.Namespaces[0].Attachments[index].Address.String(); address != want {
			t.Errorf("attachment %d: %s, want %s", index, address, want)
		}
	}
}

// Attacks by what is not measured: to lead a sidecar of ours, or a packet of the node, into the enclave.
func TestTheClusterCannotLeadInside(t *testing.T) {
	for reason, change := range map[string]func(*unmeasured.Cluster){
		"cluster.block: 8.8.0.0/16 is not one of":    func(c *unmeasured.Cluster) { c.Block = netip.MustParsePrefix("8.8.0.0/16") },
		"cluster.block: invalid Prefix is not one":   func(c *unmeasured.Cluster) { c.Block = netip.Prefix{} },
		"cluster.api[0]: 172.30.0.2 is an address":   func(c *unmeasured.Cluster) { c.API[0] = netip.MustParseAddr("172.30.0.2") },
		"cluster.api[0]: 172.31.255.2 is an address": func(c *unmeasured.Cluster) { c.API[0] = netip.MustParseAddr("172.31.255.2") },
		"cluster.api[0]: 127.0.0.1 is an address":    func(c *unmeasured.Cluster) { c.API[0] = netip.MustParseAddr("127.0.0.1") },
		"cluster.resolvers[0]: 172.30.1.2 is an address": func(c *unmeasured.Cluster) {
			c.Resolvers[0] = netip.MustParseAddrPort("172.30.1.2:53")
		},
		"cluster.probeSources[0]: 172.30.1.2 is an address": func(c *unmeasured.Cluster) {
			c.ProbeSources = []netip.Addr{netip.MustParseAddr("172.30.1.2")}
		},
		"resolver.refused[0]": func(c *unmeasured.Cluster) { c.Refused = []string{"A B"} },
	} {
		cluster := clusterValues()
		change(&cluster)
		if _, err := measuredPlan().complete(cluster); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: got %v", reason, err)
		}
	}
}

// A measured plan has no place for the cluster's values, and so none that could be left out.
func TestAPlanWithWhatIsNotMeasuredIsRefused(t *testing.T) {
	for _, field := range []string{`"denied":[]`, `"probeSources":[]`, `"resolver":{"uid":0,"upstream":[]}`} {
		if _, err := Parse([]byte(`{"version":2,` + field + `}`)); err == nil || !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("%s: got %v", field, err)
		}
	}
}
