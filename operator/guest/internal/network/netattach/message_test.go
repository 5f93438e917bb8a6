package netattach

import (
	"net/netip"
	"testing"

	"cloister.dev/guest/internal/foundation/strictjson"
)

func FuzzRequestAndAnswer(f *testing.F) {
	f.Add([]byte(`{"ask":"wire"}`))
	f.Add([]byte(`{"answer":"configure","interfaces":[{"name":"eth0","address":"172.30.0.2/24","gateway":"172.30.0.1","default":true}],"nameserver":"169.254.20.53"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = strictjson.Decode[Request](data)
		response, err := strictjson.Decode[Response](data)
		if err == nil && response.Nameserver != (netip.Addr{}) && !response.Nameserver.IsValid() {
			t.Error("an invalid name server")
		}
	})
}
