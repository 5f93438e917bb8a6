package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"cloister.dev/guest/internal/foundation/atomicfile"
	"cloister.dev/guest/internal/foundation/measured"
	"cloister.dev/guest/internal/foundation/strictjson"
	"cloister.dev/guest/internal/network/network"
	"cloister.dev/guest/internal/weights/models"
)

// Names of the agent's files.
const (
	configName = "config.yml"
	statusName = "container-status.json"
	stateName  = "state.json"
	// bootedName exists once the boot is complete: the shim then lets requests through.
	bootedName = "booted"
	httpName   = "agent.sock"
)

const maxConfig = 1 << 20

// state is what survives the agent.
type state struct {
	Version    int                `json:"version"`
	Boot       boot               `json:"boot"`
	Containers map[string]*record `json:"containers"`
}

// readState reads the state of the previous agent, or starts a boot if there is none.
func readState(spec Spec, now time.Time) (state, error) {
	known, err := strictjson.DecodeFile[state](filepath.Join(spec.Directory, stateName))
	if errors.Is(err, fs.ErrNotExist) {
		known = state{Version: Version, Boot: boot{StartedAt: now}}
	} else if err != nil {
		return state{}, fmt.Errorf("the agent's own state cannot be read: %w", err)
	}
	if known.Version != Version {
		return state{}, fmt.Errorf("the agent's own state is of version %d, this guest reads %d", known.Version, Version)
	}
	if known.Boot.Outcomes == nil {
		known.Boot.Outcomes = map[string]outcome{}
	}
	records := map[string]*record{}
	for _, one := range spec.Containers {
		if records[one.Name] = known.Containers[one.Name]; records[one.Name] == nil {
			records[one.Name] = &record{}
		}
	}
	known.Containers = records
	return known, nil
}

// layOutService creates the service directory: the configuration file, byte for byte,
// and the mount points of other volumes. A file with another digest than the measured one
// fails the boot.
func (a *agent) layOutService() error {
	for _, name := range []string{"secrets", "mpk"} {
		if err := os.MkdirAll(filepath.Join(a.spec.ServiceDirectory, name), 0o755); err != nil {
			return fmt.Errorf("the service directory: %w", err)
		}
	}
	about, err := os.Stat(a.spec.Config)
	if err == nil && about.Size() > maxConfig {
		err = strictjson.ErrTooLarge
	}
	if err != nil {
		return fmt.Errorf("the configuration file: %w", err)
	}
	data, err := os.ReadFile(a.spec.Config)
	if err != nil {
		return fmt.Errorf("the configuration file: %w", err)
	}
	now := time.Now().UTC()
	if err := a.spec.Measurement.CheckConfig(data); err != nil {
		a.state.Boot.fail(stageConfig, measured.Reason, "Stage config: "+err.Error(), now)
		return nil
	}
	a.state.Boot.settle(stageConfig, statusOK, "", now)
	return replace(filepath.Join(a.spec.ServiceDirectory, configName), data, 0o444)
}

// write writes the state, container-status.json and the marker of a completed boot.
func (a *agent) write(now time.Time) error {
	a.mutex.Lock()
	for name, one := range a.instances {
		a.state.Containers[name].noteKills(one.handles)
	}
	a.meter.take(a.instances, now)
	stored, errState := json.Marshal(a.state)
	shown, errStatus := json.Marshal(showContainers(a.spec.Containers, a.state.Containers, now))
	booted := a.state.Boot.CompletedAt != nil
	a.mutex.Unlock()
	if err := errors.Join(errState, errStatus); err != nil {
		return err
	}
	if err := replace(filepath.Join(a.spec.Directory, stateName), stored, 0o600); err != nil {
		return err
	}
	if err := replace(filepath.Join(a.spec.ServiceDirectory, statusName), append(shown, '\n'), 0o444); err != nil {
		return err
	}
	if !booted {
		return nil
	}
	a.mutex.Lock()
	a.completionSaved = true
	a.mutex.Unlock()
	return replace(filepath.Join(a.spec.Directory, bootedName), nil, 0o444)
}

// reportFailure writes the reason of a failed boot to the termination file and stops
// the agent with an error. The next agent only serves the failure.
func (a *agent) reportFailure(now time.Time) error {
	a.mutex.Lock()
	failed, message := a.state.Boot.Failure, a.state.Boot.Reported
	a.mutex.Unlock()
	if failed == nil || message {
		return nil
	}
	text := failed.Reason + ": " + failed.Message
	if err := os.WriteFile(a.spec.TerminationFile, []byte(text), 0o644); err != nil {
		return fmt.Errorf("the termination file: %w", err)
	}
	a.mutex.Lock()
	a.state.Boot.Reported = true
	a.mutex.Unlock()
	return errors.Join(fmt.Errorf("%w: %s", ErrBootFailed, text), a.write(now))
}

// externalStages returns the outcomes of the stages that other parts of the enclave complete.
func (a *agent) externalStages() map[string]outcome {
	seen := map[string]outcome{}
	for stage, rule := range a.spec.Stages {
		switch {
		case rule.Skipped != "":
			seen[stage] = outcome{Status: statusSkipped, Detail: rule.Skipped}
		case rule.File != "":
			if _, err := os.Stat(rule.File); err == nil {
				seen[stage] = outcome{Status: statusOK}
			}
		case rule.Network != "":
			status, err := network.ReadStatus(rule.Network)
			if err != nil || !status.Ready {
				continue
			}
			seen[stage] = networkOutcome(stage, status)
		case rule.Models != "":
			if status, err := models.ReadStatus(rule.Models); err == nil && status.State != models.StateRunning {
				seen[stage] = modelsOutcome(status)
			}
		}
	}
	return seen
}

func networkOutcome(stage string, status network.Status) outcome {
	if stage != "firewall" {
		return outcome{Status: statusOK}
	}
	for name, list := range status.Allowlists {
		if len(list.Unresolved) > 0 {
			return outcome{Status: statusWarning, Detail: fmt.Sprintf("Network %s: %d of its hosts could not be resolved yet, among them %s.",
				name, len(list.Unresolved), list.Unresolved[0])}
		}
	}
	return outcome{Status: statusOK}
}

// modelsOutcome returns how the verification of the weights ended.
func modelsOutcome(status models.Status) outcome {
	if status.State == models.StateFailed {
		return outcome{Status: statusFailed, Reason: cmp.Or(status.Reason, reasonBoot), Detail: status.Message}
	}
	return outcome{Status: statusOK, Detail: fmt.Sprintf("Verified against their root hashes: %d.", len(status.Models))}
}

// replace replaces a file atomically; a file with the same content is left as it is.
func replace(path string, data []byte, mode fs.FileMode) error {
	if present, err := os.ReadFile(path); err == nil && string(present) == string(data) {
		return nil
	}
	return atomicfile.Write(path, data, mode)
}
