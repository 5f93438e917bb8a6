package account

import (
	"slices"
	"testing"
)

const passwd = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\nbroken\n"

const group = "root:x:0:\nstaff:x:50:app\nother:x:60:app,root\n"

func TestResolve(t *testing.T) {
	for name, want := range map[string]User{
		"":           {Home: "/root", Groups: []int{60, 2000}},
		"app":        {UID: 1000, GID: 1001, Home: "/home/app", Groups: []int{50, 60, 2000}},
		"1000":       {UID: 1000, GID: 1001, Home: "/home/app", Groups: []int{50, 60, 2000}},
		"4242":       {UID: 4242, Home: "/", Groups: []int{2000}},
		"app:staff":  {UID: 1000, GID: 50, Home: "/home/app", Groups: []int{2000}},
		"4242:4343":  {UID: 4242, GID: 4343, Home: "/", Groups: []int{2000}},
		"4242:other": {UID: 4242, GID: 60, Home: "/", Groups: []int{2000}},
	} {
		got, err := Resolve(name, []byte(passwd), []byte(group), []int{2000})
		if err != nil || got.UID != want.UID || got.GID != want.GID || got.Home != want.Home || !slices.Equal(got.Groups, want.Groups) {
			t.Errorf("%q: %+v, %v, want %+v", name, got, err, want)
		}
	}
	for _, name := range []string{"nobody", "app:nogroup", "-1", "99999999999"} {
		if got, err := Resolve(name, []byte(passwd), []byte(group), nil); err == nil {
			t.Errorf("%q became %+v", name, got)
		}
	}
}

func FuzzResolve(f *testing.F) {
	f.Add("app:staff", passwd, group)
	f.Add("", "::::::\n:::", ":,:")
	f.Fuzz(func(t *testing.T, name, passwd, group string) {
		if user, err := Resolve(name, []byte(passwd), []byte(group), nil); err == nil && (user.UID < 0 || user.GID < 0 || user.Home == "") {
			t.Errorf("%+v", user)
		}
	})
}
