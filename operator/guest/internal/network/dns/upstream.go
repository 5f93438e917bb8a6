package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/network/firewall"
)

const (
	upstreamTimeout = 2 * time.Second
	upstreamRounds  = 2
	upstreamBuffer  = 1232
)

// ErrUpstream is returned if no upstream name server returned a usable answer.
var ErrUpstream = errors.New("no upstream name server answered")

// Upstream queries the name servers outside the enclave.
type Upstream struct {
	// Servers are queried in this order.
	Servers []netip.AddrPort
}

// Exchange sends one query over UDP, over TCP if the answer was truncated, to one
// server after the other, twice. SERVFAIL and REFUSED count as no answer.
func (u Upstream) Exchange(ctx context.Context, name string, kind uint16) (*dns.Msg, error) {
	question := new(dns.Msg)
	question.SetQuestion(dns.Fqdn(name), kind)
	question.SetEdns0(upstreamBuffer, false)
	problem := errors.New("none is configured")
	for range upstreamRounds {
		for _, server := range u.Servers {
			answer, err := exchangeOne(ctx, question, server)
			if err == nil {
				return answer, nil
			}
			problem = err
			if ctx.Err() != nil {
				return nil, fmt.Errorf("%w: %w", ErrUpstream, ctx.Err())
			}
		}
	}
	return nil, fmt.Errorf("%w: %w", ErrUpstream, problem)
}

func exchangeOne(ctx context.Context, question *dns.Msg, server netip.AddrPort) (*dns.Msg, error) {
	for _, protocol := range []string{"udp", "tcp"} {
		client := dns.Client{Net: protocol, Timeout: upstreamTimeout, UDPSize: upstreamBuffer,
			Dialer: &net.Dialer{Timeout: upstreamTimeout, Control: markSocket}}
		asked := question.Copy()
		asked.Id = dns.Id()
		answer, _, err := client.ExchangeContext(ctx, asked, server.String())
		if err != nil && !errors.Is(err, dns.ErrBuf) && (answer == nil || !answer.Truncated) {
			return nil, err
		}
		if protocol == "udp" && (err != nil || answer.Truncated) {
			continue
		}
		return checkAnswer(asked, answer)
	}
	return nil, errors.New("the answer was truncated over TCP")
}

func checkAnswer(asked, answer *dns.Msg) (*dns.Msg, error) {
	if !answer.Response || len(answer.Question) != 1 || answer.Question[0].Qtype != asked.Question[0].Qtype ||
		!strings.EqualFold(answer.Question[0].Name, asked.Question[0].Name) {
		return nil, errors.New("the answer is to another query")
	}
	if answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNameError {
		return nil, fmt.Errorf("the answer is %s", dns.RcodeToString[answer.Rcode])
	}
	return answer, nil
}

// markSocket marks the packets of this process for the packet filter.
func markSocket(_, _ string, connection syscall.RawConn) error {
	var problem error
	err := connection.Control(func(descriptor uintptr) {
		problem = unix.SetsockoptInt(int(descriptor), unix.SOL_SOCKET, unix.SO_MARK, firewall.ResolverMark)
	})
	return errors.Join(err, problem)
}
