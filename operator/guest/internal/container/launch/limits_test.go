package launch

import (
	"syscall"
	"testing"

	"cloister.dev/guest/internal/container/containerspec"
)

// A container runtime may have set less than the file gives: the launch must not fail then.
func TestLimitsAreNeverRaised(t *testing.T) {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{Cur: 50, Max: 100}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ asked, want containerspec.Limit }{
		{containerspec.Limit{Soft: -1, Hard: -1}, containerspec.Limit{Soft: 100, Hard: 100}},
		{containerspec.Limit{Soft: 200, Hard: 200}, containerspec.Limit{Soft: 100, Hard: 100}},
		{containerspec.Limit{Soft: 10, Hard: 20}, containerspec.Limit{Soft: 10, Hard: 20}},
	} {
		if err := setLimits(map[string]containerspec.Limit{"core": step.asked}); err != nil {
			t.Fatal(err)
		}
		var got syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &got); err != nil {
			t.Fatal(err)
		}
		if got.Cur != uint64(step.want.Soft) || got.Max != uint64(step.want.Hard) {
			t.Errorf("asked for %+v: %+v", step.asked, got)
		}
	}
}
