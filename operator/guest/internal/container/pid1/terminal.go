package pid1

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/shell"
)

const terminals = "/dev/ptmx"

// openTerminal creates a terminal: the master side and the side that a program is started on.
func openTerminal(size shell.Size) (held, used *os.File, err error) {
	descriptor, err := unix.Open(terminals, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("the container has no terminals (%s): %w", terminals, err)
	}
	held = os.NewFile(uintptr(descriptor), "terminal")
	if err := unix.IoctlSetPointerInt(descriptor, unix.TIOCSPTLCK, 0); err != nil {
		held.Close()
		return nil, nil, fmt.Errorf("the terminal cannot be unlocked: %w", err)
	}
	// By the master side and not by a path: /dev/pts may be another mount of the image's.
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(descriptor), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		held.Close()
		return nil, nil, fmt.Errorf("the terminal cannot be opened: %w", errno)
	}
	used = os.NewFile(peer, "terminal of the program")
	if err := resize(held, size); err != nil {
		held.Close()
		used.Close()
		return nil, nil, err
	}
	return held, used, nil
}

func resize(held *os.File, size shell.Size) error {
	raw, err := held.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(descriptor uintptr) {
		failed = unix.IoctlSetWinsize(int(descriptor), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(size.Columns), Row: uint16(size.Rows)})
	}); err != nil {
		return err
	}
	return failed
}
