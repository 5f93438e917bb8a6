package wiring

import (
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/strict"
)

func FuzzRequestAndAnswer(f *testing.F) {
	f.Add([]byte(`{"ask":"wire"}`))
	f.Add([]byte(`{"answer":"configure","interfaces":[{"name":"eth0","address":"172.30.0.2/24","gateway":"172.30.0.1","default":true}],"nameserver":"169.254.20.53"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = strict.Decode[Request](data)
		answer, err := strict.Decode[Answer](data)
		if err == nil && answer.Nameserver != (netip.Addr{}) && !answer.Nameserver.IsValid() {
			t.Error("an invalid name server")
		}
	})
}

func FuzzParseRights(f *testing.F) {
	f.Add(unix.UnixCredentials(&unix.Ucred{Pid: 1}))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, control []byte) {
		// Descriptors in made-up messages would be those of this process: leave them alone.
		if messages, err := unix.ParseSocketControlMessage(control); err == nil {
			for _, message := range messages {
				if message.Header.Type == unix.SCM_RIGHTS {
					return
				}
			}
		}
		if files, err := ParseRights(control); err == nil && len(files) > 0 {
			t.Error("descriptors out of nothing")
		}
	})
}

func TestParseRightsReturnsTheDescriptor(t *testing.T) {
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	descriptor, err := unix.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	files, err := ParseRights(unix.UnixRights(descriptor))
	if err != nil || len(files) != 1 || int(files[0].Fd()) != descriptor {
		t.Fatalf("%v, %v", files, err)
	}
	if err := files[0].Close(); err != nil {
		t.Error(err)
	}
}
