package fdpass

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func FuzzParseRights(f *testing.F) {
	f.Add(unix.UnixCredentials(&unix.Ucred{Pid: 1}))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, control []byte) {
		// Descriptors in fuzzed messages would be those of this process: skip them.
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
