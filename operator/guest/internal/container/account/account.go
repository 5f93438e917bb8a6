// Package account resolves the user that an image runs as, from the image's own
// passwd and group files.
//
// The files are the tenant's: at most 1 MiB of a regular file is read, and parsed by
// the library that container engines use.
package account

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/moby/sys/user"
	"golang.org/x/sys/unix"
)

const maxFile = 1 << 20

// User is a resolved user.
type User struct {
	UID, GID int
	// Groups are the supplementary groups, sorted, without duplicates.
	Groups []int
	// Home is the home directory; "/" if the files have none.
	Home string
	// Name is the user's name; empty if the files have none.
	Name string
	// Shell is the login shell; empty if the files have none.
	Shell string
}

// Resolve resolves a user as an image or a configuration file writes it: "", "uid",
// "name", "uid:gid", "name:group" and so on; "" is root.
//
// passwd and group are the contents of the image's files; extra are the groups that
// the Pod adds.
func Resolve(name string, passwd, group []byte, extra []int) (User, error) {
	defaults := &user.ExecUser{Home: "/"}
	found, err := user.GetExecUser(name, defaults, bytes.NewReader(passwd), bytes.NewReader(group))
	if err != nil {
		return User{}, fmt.Errorf("user %q: %w; name a user of the image or give uid:gid", name, err)
	}
	groups := slices.Concat(found.Sgids, extra)
	slices.Sort(groups)
	groups = slices.Compact(groups)
	for _, id := range slices.Concat([]int{found.Uid, found.Gid}, groups) {
		if id < 0 || int64(id) > 1<<31-2 {
			return User{}, fmt.Errorf("user %q: the id %d is out of range", name, id)
		}
	}
	if found.Home == "" {
		found.Home = "/"
	}
	resolved := User{UID: found.Uid, GID: found.Gid, Groups: groups, Home: found.Home}
	known, err := user.ParsePasswdFilter(bytes.NewReader(passwd), func(one user.User) bool { return one.Uid == found.Uid })
	if err == nil && len(known) > 0 {
		resolved.Name, resolved.Shell = known[0].Name, known[0].Shell
	}
	return resolved, nil
}

// ReadFile reads one of the image's files. A missing file is empty; anything but a
// regular file of at most 1 MiB is an error.
func ReadFile(path string) ([]byte, error) {
	// Without O_NONBLOCK a FIFO in the image could block the launcher.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the image's %s cannot be read: %w", path, err)
	}
	defer file.Close()
	about, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !about.Mode().IsRegular() {
		return nil, fmt.Errorf("the image's %s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("the image's %s cannot be read: %w", path, err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("the image's %s is larger than %d bytes", path, maxFile)
	}
	return data, nil
}
