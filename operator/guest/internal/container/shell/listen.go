package shell

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// PID1Command is the guest's command that the launcher of a debug container executes.
const PID1Command = "first"

// Listen creates a container's shell socket. The launcher calls it while it is still root,
// so that a tenant's user can neither remove nor replace the socket, and passes it on to
// the guest that it executes.
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
	// All users may connect, one is served: process 1 checks the peer's credentials.
	if err := os.Chmod(socket, 0o666); err != nil {
		return nil, fmt.Errorf("the shell socket: %w", err)
	}
	return listener.File()
}
