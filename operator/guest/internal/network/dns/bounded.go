package dns

import (
	"net"
	"net/netip"
	"sync"
)

// boundedListener accepts a bounded number of connections, of one address and of all, and
// closes those beyond: a container takes none of another's.
type boundedListener struct {
	net.Listener
	perAddress, all int

	mutex sync.Mutex
	open  map[netip.Addr]int
	count int
}

func bounded(listener net.Listener, perAddress, all int) *boundedListener {
	return &boundedListener{Listener: listener, perAddress: perAddress, all: all, open: map[netip.Addr]int{}}
}

// Accept returns the next connection within the bounds.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, err := netip.ParseAddrPort(accepted.RemoteAddr().String())
		if err == nil && l.admit(from.Addr()) {
			return &boundedConn{Conn: accepted, closed: sync.OnceFunc(func() { l.release(from.Addr()) })}, nil
		}
		accepted.Close()
	}
}

func (l *boundedListener) admit(from netip.Addr) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.count >= l.all || l.open[from] >= l.perAddress {
		return false
	}
	l.count++
	l.open[from]++
	return true
}

func (l *boundedListener) release(from netip.Addr) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.count--
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
}

// boundedConn makes room when it is closed.
type boundedConn struct {
	net.Conn
	closed func()
}

func (c *boundedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
