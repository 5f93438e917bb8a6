package network

import (
	"encoding/json"

	"cloister.dev/guest/internal/foundation/strictjson"
	"cloister.dev/guest/internal/network/allowlist"
)

// States of a namespace.
const (
	// Waiting: no launcher has connected yet.
	Waiting = "waiting"
	// Wired: the namespace is attached.
	Wired = "wired"
	// Lost: it is attached, but its descriptor was lost in a restart; a container of a
	// shared namespace that is restarted is refused.
	Lost = "lost"
)

// Status is the content of the status file of `guest net`.
type Status struct {
	// Version is that of the plan.
	Version int `json:"version"`
	// Ready means that launchers are served.
	Ready bool `json:"ready"`
	// FiltersBridges means that frames within a network are checked for forged senders.
	FiltersBridges bool `json:"filtersBridges"`
	// Namespaces maps each namespace to Waiting, Wired or Lost.
	Namespaces map[string]string `json:"namespaces"`
	// Allowlists maps each allowlist network to its state.
	Allowlists map[string]allowlist.NetworkState `json:"allowlists"`
}

// ReadStatus reads a status file.
func ReadStatus(path string) (Status, error) { return strictjson.DecodeFile[Status](path) }

func (s Status) encode() (string, error) {
	data, err := json.Marshal(s)
	return string(data) + "\n", err
}
