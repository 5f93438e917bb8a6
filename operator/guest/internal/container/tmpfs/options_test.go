package tmpfs

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseOptions(t *testing.T) {
	const secure = unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	for text, want := range map[string]Options{
		"":                              {Mode: 0o1777, Attributes: secure},
		"size=64m,mode=0700":            {Bytes: 64 << 20, Mode: 0o700, Attributes: secure},
		"exec,uid=5,gid=6,nr_inodes=1k": {Mode: 0o1777, UID: 5, GID: 6, Inodes: 1024, Attributes: secure &^ unix.MOUNT_ATTR_NOEXEC},
		"ro,size=1G":                    {Bytes: 1 << 30, Mode: 0o1777, Attributes: secure | unix.MOUNT_ATTR_RDONLY},
	} {
		if got, err := ParseOptions(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"size=", "size=0", "size=9999999999g", "mode=8", "mode=17777", "uid=-1", "huge=always", "ro,ro", "exec=1", ",", "size=1m,size=2m"} {
		if _, err := ParseOptions(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestCheckPath(t *testing.T) {
	for path, want := range map[string]bool{"/data": true, "/": false, "data": false, "/a/../b": false, "/proc/x": false, "/sys": false, "/guest": false, "/guest/x": false, "/gu": true} {
		if got := CheckPath(path, "/guest") == nil; got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
}

func FuzzParseOptions(f *testing.F) {
	f.Add("size=64m,mode=1777,uid=1,gid=2,noexec")
	f.Add("size=18446744073709551615k")
	f.Fuzz(func(t *testing.T, text string) {
		if options, err := ParseOptions(text); err == nil && options.Mode > 0o7777 {
			t.Errorf("mode %o", options.Mode)
		}
	})
}
