package main

import (
	"net"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// zone is what the emulated internet's name server knows; tests change it.
type zone struct {
	mutex   sync.Mutex
	records map[string][]string
	failing bool
	asked   map[string]int
}

func standardZone() *zone {
	return &zone{asked: map[string]int{}, records: map[string][]string{
		"allowed.example.": {"A 93.184.216.34"},
		"open.example.":    {"A 8.8.4.4"},
		"rebind.example.":  {"A 10.96.0.1", "A 169.254.169.254", "A 192.0.2.2", "A 8.8.4.4"},
		"inside.example.":  {"A 10.96.0.1"},
		"alias.example.":   {"CNAME allowed.example.", "A 93.184.216.34"},
	}}
}

func (z *zone) set(name string, records ...string) {
	z.mutex.Lock()
	defer z.mutex.Unlock()
	z.records[name] = records
}

func (z *zone) fail(failing bool) {
	z.mutex.Lock()
	defer z.mutex.Unlock()
	z.failing = failing
}

func (z *zone) count(name string) int {
	z.mutex.Lock()
	defer z.mutex.Unlock()
	return z.asked[name]
}

// ServeDNS responds with the records of a name; an A record is at the end of its chain.
func (z *zone) ServeDNS(writer dns.ResponseWriter, request *dns.Msg) {
	z.mutex.Lock()
	defer z.mutex.Unlock()
	result := new(dns.Msg)
	result.SetReply(request)
	question := request.Question[0]
	name := strings.ToLower(question.Name)
	z.asked[name]++
	records, known := z.records[name]
	switch {
	case z.failing:
		result.Rcode = dns.RcodeServerFailure
	case !known:
		result.Rcode = dns.RcodeNameError
	default:
		owner := question.Name
		for _, record := range records {
			parsed, err := dns.NewRR(owner + " 1 IN " + record)
			if err != nil {
				panic(err)
			}
			if alias, isAlias := parsed.(*dns.CNAME); isAlias {
				owner = alias.Target
			}
			result.Answer = append(result.Answer, parsed)
		}
	}
	if _, isUDP := writer.RemoteAddr().(*net.UDPAddr); isUDP {
		result.Truncate(dns.MinMsgSize)
	}
	_ = writer.WriteMsg(result)
}

// serveNames serves a zone in the emulated internet, by UDP and TCP.
func (p *pod) serveNames(served *zone) {
	inside(p.t, p.world, func() error {
		packets, err := net.ListenPacket("udp4", upstream+":53")
		if err != nil {
			return err
		}
		streams, err := net.Listen("tcp4", upstream+":53")
		if err != nil {
			return err
		}
		for _, server := range []*dns.Server{{PacketConn: packets, Handler: served}, {Listener: streams, Handler: served}} {
			started := make(chan struct{})
			server.NotifyStartedFunc = func() { close(started) }
			go func() { _ = server.ActivateAndServe() }()
			<-started
			p.t.Cleanup(func() { _ = server.Shutdown() })
		}
		return nil
	})
}
