package tmpfs

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// Mount mounts a new tmpfs on a directory of the calling mount namespace.
//
// No part of the path may be a symbolic link: the image is the tenant's, and a link could
// redirect the mount onto the guest's own files, which later probes execute with more
// privileges than the tenant has.
func Mount(target string, options Options) error {
	mounted, err := create(options)
	if err != nil {
		return fmt.Errorf("tmpfs %s: %w", target, err)
	}
	defer unix.Close(mounted)
	if err := attach(mounted, target, unix.O_DIRECTORY); err != nil {
		return fmt.Errorf("tmpfs %s: %w", target, err)
	}
	return nil
}

// MountFile mounts a read-only file with the given content over an existing file.
func MountFile(target string, content []byte) error {
	options := Options{Mode: 0o755, Bytes: uint64(len(content)) + 1<<16,
		Attributes: unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	mounted, err := create(options)
	if err != nil {
		return fmt.Errorf("file %s: %w", target, err)
	}
	defer unix.Close(mounted)
	if err := write(mounted, content); err != nil {
		return fmt.Errorf("file %s: %w", target, err)
	}
	file, err := unix.OpenTree(mounted, "file", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("file %s: open_tree: %w", target, err)
	}
	defer unix.Close(file)
	readOnly := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(file, "", unix.AT_EMPTY_PATH, &readOnly); err != nil {
		return fmt.Errorf("file %s: mount_setattr: %w", target, err)
	}
	if err := attach(file, target, 0); err != nil {
		return fmt.Errorf("file %s: %w", target, err)
	}
	return nil
}

// MountQueues mounts the message queues of the calling IPC namespace over a directory where
// those of another one are mounted.
func MountQueues(target string) error {
	mounted, err := newMount("mqueue", nil, unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return fmt.Errorf("message queues %s: %w", target, err)
	}
	defer unix.Close(mounted)
	if err := attach(mounted, target, unix.O_DIRECTORY); err != nil {
		return fmt.Errorf("message queues %s: %w", target, err)
	}
	return nil
}

// WriteKernelSetting writes one file of /proc/sys through a detached proc mount, since the
// container's /proc/sys is read-only. The setting is that of the calling thread's
// namespaces.
func WriteKernelSetting(name, value string) error {
	mounted, err := newMount("proc", nil, unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return fmt.Errorf("kernel setting %s: %w", name, err)
	}
	defer unix.Close(mounted)
	file, err := unix.Openat(mounted, "sys/"+name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("kernel setting %s: %w", name, err)
	}
	defer unix.Close(file)
	if _, err := unix.Write(file, []byte(value)); err != nil {
		return fmt.Errorf("kernel setting %s: %w", name, err)
	}
	return nil
}

func create(options Options) (int, error) {
	parameters := map[string]string{
		"mode": strconv.FormatUint(uint64(options.Mode), 8),
		"uid":  strconv.FormatUint(uint64(options.UID), 10),
		"gid":  strconv.FormatUint(uint64(options.GID), 10),
	}
	if options.Bytes > 0 {
		parameters["size"] = strconv.FormatUint(options.Bytes, 10)
	}
	if options.Inodes > 0 {
		parameters["nr_inodes"] = strconv.FormatUint(options.Inodes, 10)
	}
	return newMount("tmpfs", parameters, options.Attributes)
}

func newMount(kind string, parameters map[string]string, attributes uint64) (int, error) {
	context, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsopen %s: %w", kind, err)
	}
	defer unix.Close(context)
	for key, value := range parameters {
		if err := unix.FsconfigSetString(context, key, value); err != nil {
			return -1, fmt.Errorf("option %s=%s: %w", key, value, err)
		}
	}
	if err := unix.FsconfigCreate(context); err != nil {
		return -1, fmt.Errorf("fsconfig: %w", err)
	}
	mounted, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, int(attributes))
	if err != nil {
		return -1, fmt.Errorf("fsmount: %w", err)
	}
	return mounted, nil
}

func write(directory int, content []byte) error {
	file, err := unix.Openat(directory, "file", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	defer unix.Close(file)
	if err := unix.Fchmod(file, 0o644); err != nil {
		return err
	}
	for len(content) > 0 {
		count, err := unix.Write(file, content)
		if err != nil {
			return err
		}
		content = content[count:]
	}
	return nil
}

func attach(mounted int, target string, flags uint64) error {
	place, err := unix.Openat2(unix.AT_FDCWD, target, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW | flags,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return fmt.Errorf("the path cannot be opened (it must exist and contain no symbolic link): %w", err)
	}
	defer unix.Close(place)
	if err := unix.MoveMount(mounted, "", place, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}
