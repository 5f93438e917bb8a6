package agent

import "time"

// codeUnknown is the exit code of a container whose exit only the runtime observed.
const codeUnknown = -1

// ContainerStatus is the content of container-status.json.
type ContainerStatus struct {
	ObservedAt time.Time        `json:"observed_at"`
	Containers []ContainerState `json:"containers"`
}

// ContainerState is one container, with the names of container engines.
type ContainerState struct {
	Name         string       `json:"name"`
	ContainerID  string       `json:"container_id,omitempty"`
	Image        string       `json:"image"`
	Declared     bool         `json:"declared"`
	Created      bool         `json:"created"`
	Status       string       `json:"status,omitempty"`
	RestartCount int          `json:"restart_count"`
	Restart      string       `json:"restart_policy,omitempty"`
	OOMKilled    bool         `json:"oom_killed"`
	ExitCode     int          `json:"exit_code"`
	Error        string       `json:"error,omitempty"`
	StartedAt    *time.Time   `json:"started_at,omitempty"`
	FinishedAt   *time.Time   `json:"finished_at,omitempty"`
	Health       *HealthState `json:"health,omitempty"`
}

// HealthState is the state of a health check.
type HealthState struct {
	Status            string     `json:"status"`
	FailingStreak     int        `json:"failing_streak"`
	LastCheckStart    *time.Time `json:"last_check_start,omitempty"`
	LastCheckEnd      *time.Time `json:"last_check_end,omitempty"`
	LastCheckExitCode *int       `json:"last_check_exit_code,omitempty"`
}

// showContainers returns the status of all containers.
func showContainers(containers []Container, records map[string]*record, now time.Time) ContainerStatus {
	spec := ContainerStatus{ObservedAt: now, Containers: []ContainerState{}}
	for _, one := range containers {
		spec.Containers = append(spec.Containers, showContainer(one, records[one.Name], now))
	}
	return spec
}

func showContainer(about Container, known *record, now time.Time) ContainerState {
	state := ContainerState{
		Name: about.Name, ContainerID: known.ContainerID, Image: about.Image, Declared: true, Created: known.Launches > 0,
		RestartCount: max(0, known.Launches-1), Restart: about.Restart, Error: known.Error,
		OOMKilled: known.OOMKills != nil && *known.OOMKills > 0,
		StartedAt: known.StartedAt, FinishedAt: known.FinishedAt,
	}
	switch known.Phase {
	case phaseLaunching:
		state.Status = "created"
	case phaseRunning:
		state.Status = "running"
	case phaseExited:
		state.Status = "exited"
		if about.restarts(known.ExitCode) {
			state.Status = "restarting"
		}
		state.ExitCode = codeUnknown
		if known.ExitCode != nil {
			state.ExitCode = *known.ExitCode
		}
	}
	if about.checked() && known.Launches > 0 {
		state.Health = &HealthState{Status: healthStarting}
	}
	if health := known.Health; about.checked() && health != nil {
		state.Health = &HealthState{Status: health.Status, FailingStreak: health.FailingStreak,
			LastCheckStart: health.LastStart, LastCheckEnd: health.LastEnd, LastCheckExitCode: health.LastExitCode}
		if known.isSilent(about, now) {
			state.Health.Status = healthUnhealthy
		}
	}
	return state
}
