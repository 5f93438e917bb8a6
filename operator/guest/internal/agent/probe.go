package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
)

// ErrNotReady is returned while the enclave is not ready.
var ErrNotReady = errors.New("the enclave is not ready")

// Check is the enclave's readiness probe: nil if every container has started, each one
// with a health check is healthy, none is known to have failed, and the boot is
// complete. It queries the agent whose sockets are in directory.
func Check(directory string) error { return probe(directory, readyPath) }

// Up is the agent's startup probe: nil if launchers and probes are served.
func Up(directory string) error { return probe(directory, upPath) }

func probe(directory, path string) error {
	client := http.Client{Timeout: checkTimeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(directory, checkName))
		},
	}}
	response, err := client.Get("http://agent" + path)
	if err != nil {
		return fmt.Errorf("%w: the agent does not respond: %w", ErrNotReady, err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	return errors.Join(fmt.Errorf("%w; waiting for: %s", ErrNotReady, text), err)
}
