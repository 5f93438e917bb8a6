// Package shimsocket makes the sockets on which parts of the enclave serve the shim.
package shimsocket

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// Listen creates a socket, in place of that of a previous process. Its mode allows all to connect: only
// the containers that may have its directory mounted.
func Listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the socket of a previous process cannot be removed: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("the socket for the shim cannot be created: %w", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}
