package allowlist

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	miekgdns "github.com/miekg/dns"

	"cloister.dev/guest/internal/network/netplan"
)

// memory is a filter without a kernel.
type memory struct{ addresses []netip.Addr }

func (m *memory) Allow(_ netplan.Network, addresses []netip.Addr) error {
	m.addresses = addresses
	return nil
}

func (m *memory) Allowed(netplan.Network) ([]netip.Addr, error) { return m.addresses, nil }

// silent resolves nothing.
type silent struct{}

func (silent) Exchange(context.Context, string, uint16) (*miekgdns.Msg, error) {
	return nil, errors.New("no response")
}

func addresses(first byte, count int) []netip.Addr {
	found := make([]netip.Addr, count)
	for index := range found {
		found[index] = netip.AddrFrom4([4]byte{93, first, byte(index >> 8), byte(index)})
	}
	return found
}

func TestAddressesBeyondTheLimitAreRefusedAndReported(t *testing.T) {
	network := netplan.Network{Name: "out", Egress: netplan.EgressAllowlist, Allow: []string{"many.example", "one.example"}}
	var written bytes.Buffer
	filter := &memory{}
	manager, err := New(netplan.Plan{Networks: []netplan.Network{network}}, silent{}, filter, time.Now, slog.New(slog.NewTextHandler(&written, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := manager.Learn(network, "many.example", addresses(1, maxAddresses), time.Minute); err != nil {
		t.Fatalf("exactly as many as there may be: %v", err)
	}
	for range 2 {
		if err := manager.Learn(network, "one.example", addresses(2, 3), time.Minute); !errors.Is(err, errFull) {
			t.Errorf("three more: %v", err)
		}
	}
	if state := manager.State()["out"]; state.Addresses != maxAddresses || state.Dropped != 3 || len(filter.addresses) != maxAddresses {
		t.Errorf("%d in the filter, state %+v", len(filter.addresses), state)
	}
	if text := written.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "network=out limit=8192 dropped=3") {
		t.Errorf("the log: %q", text)
	}
}
