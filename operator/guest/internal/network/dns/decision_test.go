package dns

import (
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"cloister.dev/guest/internal/network/netplan"
)

var document = netplan.Plan{
	Networks: []netplan.Network{
		{Name: "in", Egress: netplan.EgressClosed, Subnet: netip.MustParsePrefix("172.30.0.0/24")},
		{Name: "out", Egress: netplan.EgressOpen, Subnet: netip.MustParsePrefix("172.30.1.0/24")},
	},
	Namespaces: []netplan.Namespace{
		{Name: "a", Containers: []string{"a"}, Attachments: []netplan.Attachment{{Network: "in", Address: netip.MustParseAddr("172.30.0.2")}}},
		{Name: "b", Containers: []string{"b"}, Attachments: []netplan.Attachment{{Network: "out", Address: netip.MustParseAddr("172.30.1.3")}}},
	},
}

func TestDecide(t *testing.T) {
	closed, open := netip.MustParseAddr("172.30.0.2"), netip.MustParseAddr("172.30.1.3")
	for _, one := range []struct {
		asker netip.Addr
		name  string
		kind  uint16
		want  Action
	}{
		{closed, "A.", dns.TypeA, Local}, {closed, "a", dns.TypeMX, NoData}, {closed, "b", dns.TypeA, NXDomain}, {closed, "x.example", dns.TypeA, NXDomain},
		{open, "x.example", dns.TypeA, Forward}, {open, "x.example", dns.TypeAAAA, NoData}, {open, "x.example", dns.TypeTXT, Forward},
		{open, "x.local", dns.TypeA, NXDomain}, {open, "1.0.0.10.in-addr.arpa", dns.TypePTR, NXDomain}, {open, "localhost", dns.TypeA, NXDomain},
		{netip.MustParseAddr("172.30.1.9"), "x.example", dns.TypeA, Refuse},
	} {
		if got := Decide(document, one.asker, one.name, one.kind); got.Action != one.want {
			t.Errorf("%s queries %s %s: %d, want %d", one.asker, one.name, dns.TypeToString[one.kind], got.Action, one.want)
		}
	}
}

// FuzzAnswer sends the server arbitrary messages, and lets an upstream answer with the
// same bytes: the response must not contain anything forbidden.
func FuzzAnswer(f *testing.F) {
	question := new(dns.Msg)
	question.SetQuestion("x.example.", dns.TypeA)
	packed, err := question.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	f.Fuzz(func(t *testing.T, data []byte) {
		message := new(dns.Msg)
		if message.Unpack(data) != nil {
			return
		}
		server := NewServer(document, Upstream{}, nil)
		if answer := server.Answer(netip.MustParseAddr("172.30.0.2"), message); answer == nil {
			t.Error("no answer")
		}
		addresses, ttl := Clean(document, message)
		for _, address := range addresses {
			if document.Denies(address) {
				t.Errorf("%s passed", address)
			}
		}
		if ttl > maxTTL {
			t.Errorf("time to live %d", ttl)
		}
	})
}
