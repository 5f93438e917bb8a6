package netplan

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
)

func valid() Plan {
	return Plan{
		Version: Version, Uplink: "eth0", SocketDirectory: "/run/wire", StatusFile: "/run/status.json",
		Networks: []Network{
			{Name: ShimNetwork, Egress: EgressClosed, Subnet: netip.MustParsePrefix("172.31.255.0/30")},
			{Name: "back", Egress: EgressAllowlist, Allow: []string{"a.example"}, Subnet: netip.MustParsePrefix("172.30.0.0/24")},
			{Name: "out", Egress: EgressOpen, Subnet: netip.MustParsePrefix("172.30.1.0/24")},
		},
		Namespaces: []Namespace{
			{Name: "web", Containers: []string{"web"}, Attachments: []Attachment{
				{Network: ShimNetwork, Address: netip.MustParseAddr("172.31.255.2")}, {Network: "back", Address: netip.MustParseAddr("172.30.0.2")}}},
			{Name: "lonely", Containers: []string{"lonely"}},
		},
		Denied: []netip.Prefix{netip.MustParsePrefix("203.0.113.7/32"), netip.MustParsePrefix("2001:db8::/32")},
	}
}

func TestValidate(t *testing.T) {
	for name, change := range map[string]func(*Plan){
		"version":                   func(p *Plan) { p.Version = 1 },
		"uplink":                    func(p *Plan) { p.Uplink = "lo" },
		"socketDirectory":           func(p *Plan) { p.SocketDirectory = "run" },
		"statusFile":                func(p *Plan) { p.StatusFile = "" },
		"inbound":                   func(p *Plan) { p.Inbound = []uint16{0} },
		"probes":                    func(p *Plan) { p.Probes, p.Inbound = 9000, []uint16{9000} },
		"probeSources":              func(p *Plan) { p.ProbeSources = []netip.Addr{netip.MustParseAddr("fd00::1")} },
		"networks[1].name":          func(p *Plan) { p.Networks[1].Name = "-x" },
		"networks[2].name":          func(p *Plan) { p.Networks[2].Name = "back" },
		"networks[0].egress":        func(p *Plan) { p.Networks[0].Egress = EgressOpen },
		"networks[2].egress":        func(p *Plan) { p.Networks[2].Egress = "none" },
		"networks[2].allow":         func(p *Plan) { p.Networks[2].Allow = []string{"a.example"} },
		"networks[1].allow[0]":      func(p *Plan) { p.Networks[1].Allow = []string{"93.184.216.34"} },
		"networks[2].subnet":        func(p *Plan) { p.Networks[2].Subnet = netip.MustParsePrefix("172.30.0.128/25") },
		"networks[1].subnet":        func(p *Plan) { p.Networks[1].Subnet = netip.MustParsePrefix("8.8.8.0/24") },
		"namespaces[0].attachments": func(p *Plan) { p.Namespaces[0].Attachments[1].Address = netip.MustParseAddr("172.30.0.1") },
		"namespaces[1].containers":  func(p *Plan) { p.Namespaces[1].Containers = []string{"WEB"} },
		"namespaces[1].name":        func(p *Plan) { p.Namespaces[1].Name = "web" },
		"namespaces[1].attachments": func(p *Plan) { p.Namespaces[1].Attachments = []Attachment{{Network: "absent"}} },
		"sideCars[0].destinations":  func(p *Plan) { p.Sidecars = []Sidecar{{Destinations: []Destination{{}}}} },
		"resolver.upstream[0]":      func(p *Plan) { p.Resolver.Upstream = []netip.AddrPort{{}} },
		"resolver.refused[0]":       func(p *Plan) { p.Resolver.Refused = []string{"Cluster"} },
		"refreshSeconds":            func(p *Plan) { p.RefreshSeconds = -1 },
		"more than one network that": func(p *Plan) {
			p.Namespaces[0].Attachments = append(p.Namespaces[0].Attachments, Attachment{Network: "out", Address: netip.MustParseAddr("172.30.1.2")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := valid()
			change(&plan)
			if err := plan.Validate(); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v", err)
			}
		})
	}
	if err := valid().Validate(); err != nil {
		t.Error(err)
	}
}

func TestDeniedRangesNeverOverlap(t *testing.T) {
	plan := valid()
	plan.Denied = append(plan.Denied, netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("203.0.113.0/24"))
	ranges := plan.DeniedRanges()
	for index := range ranges[1:] {
		if ranges[index].Overlaps(ranges[index+1]) {
			t.Errorf("%s overlaps %s", ranges[index], ranges[index+1])
		}
	}
	for _, address := range []string{"10.1.2.3", "203.0.113.7", "169.254.169.254", "::1", "224.0.0.1", "255.255.255.255", "0.0.0.0"} {
		if !plan.Denies(netip.MustParseAddr(address)) {
			t.Errorf("%s is not denied", address)
		}
	}
	if plan.Denies(netip.MustParseAddr("93.184.216.34")) {
		t.Error("a public address is denied")
	}
}

func TestNamesOfDevicesFit(t *testing.T) {
	plan := valid()
	for _, name := range []string{plan.Networks[0].Bridge(), plan.Namespaces[0].Port("back")} {
		if len(name) > 15 {
			t.Errorf("%s is too long for a device", name)
		}
	}
	if mac := plan.Namespaces[0].PortMAC("back"); len(mac) != 6 || mac[0] != 2 {
		t.Errorf("hardware address %s", mac)
	}
}

func FuzzParse(f *testing.F) {
	data, err := json.Marshal(valid())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"networks":[{"subnet":"::/0"}],"namespaces":[{"attachments":[{"address":"::1"}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		plan, err := Parse(data)
		if err != nil {
			return
		}
		for _, namespace := range plan.Namespaces {
			for _, attachment := range namespace.Attachments {
				if _, found := plan.NamespaceAt(attachment.Address); !found {
					t.Errorf("%s belongs to no namespace", attachment.Address)
				}
			}
		}
		plan.DeniedRanges()
	})
}
