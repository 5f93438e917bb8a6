package firewall

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables"
)

// elements returns the set elements of addresses, without duplicates.
func elements(addresses []netip.Addr) []nftables.SetElement {
	sorted := slices.Clone(addresses)
	slices.SortFunc(sorted, netip.Addr.Compare)
	made := []nftables.SetElement{}
	for _, one := range slices.Compact(sorted) {
		if one.Is4() {
			made = append(made, nftables.SetElement{Key: one.AsSlice()})
		}
	}
	return made
}

// intervals returns the elements of an interval set of sorted, disjoint ranges. Adjacent
// ranges are merged; a range that ends at the last address has no end element.
func intervals(ranges []netip.Prefix) []nftables.SetElement {
	type interval struct{ first, last uint32 }
	joined := []interval{}
	for _, one := range ranges {
		first := binary.BigEndian.Uint32(one.Masked().Addr().AsSlice())
		last := first | (1<<(32-one.Bits()) - 1)
		if count := len(joined); count > 0 && joined[count-1].last+1 == first {
			joined[count-1].last = last
			continue
		}
		joined = append(joined, interval{first, last})
	}
	made := []nftables.SetElement{}
	for _, one := range joined {
		made = append(made, nftables.SetElement{Key: binary.BigEndian.AppendUint32(nil, one.first)})
		if one.last != ^uint32(0) {
			made = append(made, nftables.SetElement{Key: binary.BigEndian.AppendUint32(nil, one.last+1), IntervalEnd: true})
		}
	}
	return made
}
