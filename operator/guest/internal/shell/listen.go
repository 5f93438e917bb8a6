package shell

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// PID1Command is the guest's command that the launcher of a debug container becomes.
const PID1Command = "first"

// Listen makes a container's shell socket. The launcher calls it while it still is
// root, so that a tenant's user can neither remove nor replace the socket, and
// leaves the result to the process that it becomes.
func Listen(socket string) (*os.File, error) {
	if err := os.Chmod(filepath.Dir(socket), 0o755); err != nil {
		return nil, fmt.Errorf("the shell socket's directory: %w", err)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the shell socket of an earlier start: %w", err)
	}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("the shell socket: %w", err)
	}
	defer listener.Close()
	listener.SetUnlinkOnClose(false)
	// Everybody may connect, and one user is served: process 1 asks the kernel who it is.
	if err := os.Chmod(socket, 0o666); err != nil {
		return nil, fmt.Errorf("the shell socket: %w", err)
	}
	return listener.File()
}
