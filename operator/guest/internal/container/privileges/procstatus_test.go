package privileges

import "testing"

const status = "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nCapBnd:\t00000000002011c0\n"

func FuzzParseStatus(f *testing.F) {
	f.Add(status)
	f.Add("Uid:\t-1\t-1\t-1\t-1\n")
	if parsed, err := ParseProcStatus(status); err != nil || parsed.UID != 2 || parsed.GID != 6 || parsed.Bounding != 0x2011c0 {
		f.Errorf("%+v, %v", parsed, err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if parsed, err := ParseProcStatus(text); err == nil && (parsed.UID < 0 || parsed.GID < 0) {
			t.Errorf("%+v", parsed)
		}
	})
}
