package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"cloister.dev/guest/internal/network/netplan"
)

const (
	localTTL      = 5
	answerTimeout = 8 * time.Second
	maxForwarded  = 128
	maxPerAsker   = 32
	maxStreams    = 1024
	idleTCP       = 5 * time.Second
)

// Exchanger queries upstream name servers.
type Exchanger interface {
	// Exchange sends one query.
	Exchange(ctx context.Context, name string, kind uint16) (*dns.Msg, error)
}

// Learner is notified of the addresses of an allowed host before the container gets them.
type Learner interface {
	// Learn makes the addresses reachable for the network.
	Learn(network netplan.Network, host string, addresses []netip.Addr, ttl time.Duration) error
}

// Server is the name server.
type Server struct {
	plan     netplan.Plan
	upstream Exchanger
	learner  Learner
	slots    chan struct{}
	perAsker map[string]chan struct{}
	servers  []*dns.Server
}

// NewServer returns a name server for a plan.
func NewServer(plan netplan.Plan, upstream Exchanger, learner Learner) *Server {
	server := &Server{plan: plan, upstream: upstream, learner: learner,
		slots: make(chan struct{}, maxForwarded), perAsker: map[string]chan struct{}{}}
	for _, namespace := range plan.Namespaces {
		server.perAsker[namespace.Name] = make(chan struct{}, maxPerAsker)
	}
	return server
}

// Start listens on UDP and TCP at an address; both are bound when it returns.
func (s *Server) Start(address netip.AddrPort) error {
	packets, err := net.ListenPacket("udp4", address.String())
	if err != nil {
		return fmt.Errorf("the name server cannot listen on UDP %s: %w", address, err)
	}
	streams, err := net.Listen("tcp4", address.String())
	if err != nil {
		packets.Close()
		return fmt.Errorf("the name server cannot listen on TCP %s: %w", address, err)
	}
	for _, one := range []*dns.Server{
		{PacketConn: packets, Handler: s, ReadTimeout: idleTCP},
		{Listener: bounded(streams, maxPerAsker, maxStreams), Handler: s, ReadTimeout: idleTCP, WriteTimeout: idleTCP,
			IdleTimeout: func() time.Duration { return idleTCP }, MaxTCPQueries: 64},
	} {
		started := make(chan struct{})
		one.NotifyStartedFunc = func() { close(started) }
		failed := make(chan error, 1)
		go func() { failed <- one.ActivateAndServe() }()
		select {
		case <-started:
			s.servers = append(s.servers, one)
		case err := <-failed:
			return fmt.Errorf("the name server cannot serve: %w", err)
		}
	}
	return nil
}

// Stop stops the server.
func (s *Server) Stop() error {
	var problems []error
	for _, one := range s.servers {
		problems = append(problems, one.Shutdown())
	}
	return errors.Join(problems...)
}

// ServeDNS serves one request.
func (s *Server) ServeDNS(writer dns.ResponseWriter, request *dns.Msg) {
	asker, err := netip.ParseAddrPort(writer.RemoteAddr().String())
	if err != nil {
		return
	}
	answer := s.Answer(asker.Addr().Unmap(), request)
	if _, isUDP := writer.RemoteAddr().(*net.UDPAddr); isUDP {
		size := dns.MinMsgSize
		if option := request.IsEdns0(); option != nil {
			size = min(max(int(option.UDPSize()), dns.MinMsgSize), upstreamBuffer)
		}
		answer.Truncate(size)
	}
	_ = writer.WriteMsg(answer) // an error means that the client is gone
}

// Answer returns the response to a request from an address.
func (s *Server) Answer(asker netip.Addr, request *dns.Msg) *dns.Msg {
	answer := new(dns.Msg)
	if len(request.Question) != 1 || request.Response {
		return answer.SetRcode(request, dns.RcodeFormatError)
	}
	answer.SetReply(request)
	answer.RecursionAvailable, answer.Compress = true, true
	question := request.Question[0]
	if request.Opcode != dns.OpcodeQuery || question.Qclass != dns.ClassINET {
		answer.Rcode = dns.RcodeNotImplemented
		return answer
	}
	decision := Decide(s.plan, asker, question.Name, question.Qtype)
	switch decision.Action {
	case Refuse:
		answer.Rcode = dns.RcodeRefused
	case NXDomain:
		answer.Rcode = dns.RcodeNameError
	case Local:
		for _, address := range decision.Addresses {
			answer.Answer = append(answer.Answer, &dns.A{A: address.AsSlice(),
				Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: localTTL}})
		}
	case Forward:
		s.forward(asker, question.Qtype, decision, answer)
	case NoData:
	}
	return answer
}

func (s *Server) forward(asker netip.Addr, kind uint16, decision Decision, answer *dns.Msg) {
	namespace, _ := s.plan.NamespaceAt(asker)
	for _, slots := range []chan struct{}{s.perAsker[namespace.Name], s.slots} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			answer.Rcode = dns.RcodeServerFailure // too many concurrent queries
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	got, err := s.upstream.Exchange(ctx, decision.Name, kind)
	if err != nil {
		answer.Rcode = dns.RcodeServerFailure
		return
	}
	addresses, ttl := Clean(s.plan, got)
	if decision.EgressNetwork.Egress == netplan.EgressAllowlist && len(addresses) > 0 {
		if err := s.learner.Learn(decision.EgressNetwork, decision.Name, addresses, time.Duration(ttl)*time.Second); err != nil {
			answer.Rcode = dns.RcodeServerFailure
			return
		}
	}
	answer.Rcode, answer.Answer, answer.Ns = got.Rcode, got.Answer, got.Ns
}
