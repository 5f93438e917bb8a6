package verifyproxy

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Names are the hosts under which clients may call the proxy. The page of any web site can let its own name
// lead to the proxy's address (DNS rebinding): a browser then sends requests here, and shows the page what
// the enclave responds. Its requests have the site's name in Host.
type Names struct {
	// Listed are names in addition to localhost.
	Listed []string
	// Addresses means that clients may use any IP address, not only those of the loopback.
	Addresses bool
}

// have reports whether a request's Host is one of them, with any port.
func (n Names) have(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	if address, err := netip.ParseAddr(name); err == nil {
		return n.Addresses || address.Unmap().IsLoopback()
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == "localhost" || slices.Contains(n.Listed, name)
}
