// Package tmpfs mounts memory file systems on paths of a container: the tmpfs entries of the
// configuration file and small files of the guest.
//
// Options are applied to a new tmpfs, not to the volume that the Pod mounted there: a volume
// of the node belongs to another user namespace and cannot be remounted, and a tmpfs of the
// container itself disappears with the container, as in container engines.
package tmpfs

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Options are the options of one tmpfs.
type Options struct {
	// Bytes is the size; 0 means the kernel's default, half of the memory.
	Bytes uint64
	// Mode are the permission bits of the root directory.
	Mode uint32
	// UID, GID own the root directory.
	UID, GID uint32
	// Inodes is the largest number of files; 0 means the kernel's default.
	Inodes uint64
	// Attributes are MOUNT_ATTR_* flags.
	Attributes uint64
}

var flags = map[string]struct {
	set, clear uint64
}{
	"rw":          {clear: unix.MOUNT_ATTR_RDONLY},
	"ro":          {set: unix.MOUNT_ATTR_RDONLY},
	"exec":        {clear: unix.MOUNT_ATTR_NOEXEC},
	"noexec":      {set: unix.MOUNT_ATTR_NOEXEC},
	"suid":        {clear: unix.MOUNT_ATTR_NOSUID},
	"nosuid":      {set: unix.MOUNT_ATTR_NOSUID},
	"dev":         {clear: unix.MOUNT_ATTR_NODEV},
	"nodev":       {set: unix.MOUNT_ATTR_NODEV},
	"diratime":    {clear: unix.MOUNT_ATTR_NODIRATIME},
	"nodiratime":  {set: unix.MOUNT_ATTR_NODIRATIME},
	"atime":       {clear: unix.MOUNT_ATTR__ATIME},
	"noatime":     {clear: unix.MOUNT_ATTR__ATIME, set: unix.MOUNT_ATTR_NOATIME},
	"relatime":    {clear: unix.MOUNT_ATTR__ATIME},
	"strictatime": {clear: unix.MOUNT_ATTR__ATIME, set: unix.MOUNT_ATTR_STRICTATIME},
	"defaults":    {},
}

// ParseOptions parses the comma-separated options of a tmpfs in the configuration file. The
// defaults are those of container engines: mode 1777, noexec, nosuid, nodev. An option that
// is unknown, has an invalid value or is given twice is an error.
func ParseOptions(text string) (Options, error) {
	options := Options{
		Mode:       0o1777,
		Attributes: unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
	}
	seen := map[string]bool{}
	if text == "" {
		return options, nil
	}
	for _, option := range strings.Split(text, ",") {
		name, value, hasValue := strings.Cut(option, "=")
		if seen[name] {
			return Options{}, fmt.Errorf("option %q is given twice", name)
		}
		seen[name] = true
		if flag, known := flags[name]; known {
			if hasValue {
				return Options{}, fmt.Errorf("option %q takes no value", name)
			}
			options.Attributes = options.Attributes&^flag.clear | flag.set
			continue
		}
		if err := options.parseValue(name, value); err != nil {
			return Options{}, err
		}
	}
	return options, nil
}

func (o *Options) parseValue(name, value string) error {
	var err error
	var number uint64
	switch name {
	case "size":
		o.Bytes, err = parseSize(value)
	case "nr_inodes":
		o.Inodes, err = parseSize(value)
	case "mode":
		number, err = strconv.ParseUint(value, 8, 32)
		if err == nil && number > 0o7777 {
			err = errors.New("beyond 7777")
		}
		o.Mode = uint32(number)
	case "uid":
		number, err = strconv.ParseUint(value, 10, 31)
		o.UID = uint32(number)
	case "gid":
		number, err = strconv.ParseUint(value, 10, 31)
		o.GID = uint32(number)
	default:
		return fmt.Errorf("option %q is not known for a tmpfs", name)
	}
	if err != nil {
		return fmt.Errorf("option %s=%s cannot be read: %w", name, value, err)
	}
	return nil
}

// parseSize parses a positive number with an optional binary unit k, m or g.
func parseSize(text string) (uint64, error) {
	digits, shift := text, 0
	if text != "" {
		if at := strings.IndexByte("kmg", text[len(text)-1]|0x20); at >= 0 {
			digits, shift = text[:len(text)-1], 10*(at+1)
		}
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0, err
	}
	if number == 0 || number > (1<<62)>>shift {
		return 0, errors.New("out of range")
	}
	return number << shift, nil
}

// CheckPath returns an error unless a tmpfs may be mounted on a path: absolute, clean,
// neither the root nor a directory that the container's isolation depends on.
func CheckPath(target string, forbidden ...string) error {
	if !path.IsAbs(target) || path.Clean(target) != target || target == "/" || strings.ContainsRune(target, 0) {
		return fmt.Errorf("%q is not an absolute, clean path below the root", target)
	}
	for _, one := range append([]string{"/proc", "/sys"}, forbidden...) {
		if target == one || strings.HasPrefix(target, one+"/") || strings.HasPrefix(one, target+"/") {
			return fmt.Errorf("%q would hide %s or be inside it", target, one)
		}
	}
	return nil
}
