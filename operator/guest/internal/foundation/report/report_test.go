package report

import (
	"strings"
	"testing"
)

func FuzzFindID(f *testing.F) {
	id := strings.Repeat("0123456789abcdef", 4)
	f.Add("0::/\n")
	f.Add("4:memory:/kubepods/burstable/pod1/" + id + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		if found := FindID(text); found != "" && (len(found) != 64 || !strings.Contains(text, found)) {
			t.Errorf("%q", found)
		}
	})
	for text, want := range map[string]string{
		"0::/\n": "",
		"4:memory:/kubepods/burstable/pod1/" + id + "\n":                    id,
		"0::/system.slice/kubepods.slice/cri-containerd-" + id + ".scope\n": id,
		"0::/" + strings.Repeat("a", 65):                                    "",
	} {
		if got := FindID(text); got != want {
			f.Errorf("%q: %q", text, got)
		}
	}
}
