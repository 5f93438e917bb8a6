// Package shim is the front of an enclave: Caddy ends TLS and passes requests on, and one handler of ours
// between the two applies the rules of the configuration file.
package shim

import (
	"os"
	"path/filepath"
	"time"

	"cloister.dev/guest/internal/foundation/paths"
	"cloister.dev/guest/internal/foundation/unmeasured"
)

const awaitPause = 20 * time.Millisecond

// Run serves with the configuration at a path until the process is terminated. It returns only on an error.
func Run(path string) error {
	config, err := ReadConfig(path)
	if err != nil {
		return err
	}
	told, err := unmeasured.ReadFor(path)
	if err != nil {
		return err
	}
	// Caddy reads more than its configuration, such as the address of a proxy.
	os.Clearenv()
	if config.Store != "" {
		// Caddy looks for it when it starts, and then only after a pause that grows.
		awaitFile(filepath.Join(filepath.Dir(config.Store), filepath.Base(paths.ChainFile)))
	}
	if err := start(config, told.Hostnames); err != nil {
		return err
	}
	select {}
}

// awaitFile waits until a file exists. How long that may take is decided by the part that creates it, and
// reports why it is missing.
func awaitFile(path string) {
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		time.Sleep(awaitPause)
	}
}
