package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"cloister.dev/guest/internal/allowlist"
	"cloister.dev/guest/internal/strictjson"
)

// What a namespace's network is.
const (
	// Waiting: no launcher has come yet.
	Waiting = "waiting"
	// Wired: the namespace is connected.
	Wired = "wired"
	// Lost: it is connected, but a restart lost the way into it; a container of
	// a shared namespace that starts anew is refused.
	Lost = "lost"
)

// Status is what `guest net` tells about itself.
type Status struct {
	// Version is that of the plan.
	Version int `json:"version"`
	// Ready tells that launchers are served.
	Ready bool `json:"ready"`
	// FiltersBridges reports whether frames within a network are checked for forged senders.
	FiltersBridges bool `json:"filtersBridges"`
	// Namespaces maps each namespace to Waiting, Wired or Lost.
	Namespaces map[string]string `json:"namespaces"`
	// Allowlists maps each allowlist network to its state.
	Allowlists map[string]allowlist.NetworkState `json:"allowlists"`
}

// ReadStatus reads a status file.
func ReadStatus(path string) (Status, error) { return strictjson.DecodeFile[Status](path) }

// Check is the sidecar's startup probe: nil when `guest net` is ready.
func Check(path string) error {
	status, err := ReadStatus(path)
	if err != nil {
		return fmt.Errorf("the enclave's network is not ready: %w", err)
	}
	if !status.Ready {
		return errors.New("the enclave's network is not ready")
	}
	return nil
}

func (s Status) encode() (string, error) {
	data, err := json.Marshal(s)
	return string(data) + "\n", err
}

func writeStatus(path, text string) error {
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.WriteFile(temporary, []byte(text), 0o644); err != nil {
		return fmt.Errorf("the status cannot be written: %w", err)
	}
	return os.Rename(temporary, path)
}
