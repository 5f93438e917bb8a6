package agent

import (
	"time"

	"cloister.dev/guest/internal/report"
)

// Lives of a container.
const (
	// lifeNone: it has not been started yet.
	phaseNone = ""
	// lifeLaunching: its launcher is at work.
	phaseLaunching = "launching"
	// lifeRunning: its program runs.
	phaseRunning = "running"
	// lifeEnded: its process 1 has ended.
	phaseExited = "ended"
	// lifeUnknown: the agent started anew and could not take the process over.
	phaseUnknown = "unknown"
)

// States of a health check, as package health has them.
const (
	healthStarting  = "starting"
	healthHealthy   = "healthy"
	healthUnhealthy = "unhealthy"
)

// record is what is known about one container. It outlives the agent, in its state file.
type record struct {
	// Life is one of the lives.
	Phase string `json:"life"`
	// Process names process 1 of the last life among all processes of the kernel; 0 when it cannot.
	Process uint64 `json:"process,omitempty"`
	// Launches counts the launches that were reported.
	Launches int `json:"launches"`
	// FirstLaunch is when the first one was, FirstStart when a program first ran,
	// FirstHealthy when the health check first passed.
	FirstLaunch  *time.Time `json:"firstLaunch,omitempty"`
	FirstStart   *time.Time `json:"firstStart,omitempty"`
	FirstHealthy *time.Time `json:"firstHealthy,omitempty"`
	// StartedAt and FinishedAt are of the last life; null when not known.
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	// ExitCode is of the last end; null when there was none, or only the runtime knows.
	ExitCode *int `json:"exitCode,omitempty"`
	// Error tells why the last launch failed.
	Error string `json:"error,omitempty"`
	// OOMKills counts the kills for want of memory in the last life; null when the runtime does not show them.
	OOMKills *int64 `json:"oomKills,omitempty"`
	// ContainerID is the runtime's id of the last life.
	ContainerID string `json:"containerID,omitempty"`
	// Health is what the last probe said in the last life; null before.
	Health *report.HealthReport `json:"health,omitempty"`
}

// launch notes that a launcher is at work. One that tells a second time, because
// the agent ended before it answered, is the same launch.
func (r *record) launch(process uint64, id string, now time.Time) {
	if r.Phase == phaseLaunching && process != 0 && r.Process == process {
		return
	}
	r.Phase, r.Process, r.ContainerID = phaseLaunching, process, id
	r.Launches++
	if r.FirstLaunch == nil {
		r.FirstLaunch = &now
	}
	r.StartedAt, r.FinishedAt, r.ExitCode, r.OOMKills, r.Health, r.Error = nil, nil, nil, nil, nil, ""
}

// start notes that the program runs.
func (r *record) start(now time.Time) {
	if r.Phase != phaseLaunching {
		return
	}
	r.Phase, r.StartedAt = phaseRunning, &now
	if r.FirstStart == nil {
		r.FirstStart = &now
	}
}

// fail notes why a launch failed.
func (r *record) fail(text string, exitCode int) {
	if r.Phase == phaseLaunching || r.Phase == phaseExited {
		r.Error, r.ExitCode = text, &exitCode
	}
}

// end notes that process 1 has ended; a null time means that nobody saw when.
func (r *record) end(at *time.Time) {
	if r.Phase != phaseExited {
		r.Phase, r.FinishedAt = phaseExited, at
	}
}

// adopt notes a process that was already there when the agent learned of it. When
// it was started is known only if the record is of the same process.
func (r *record) adopt(process uint64, id string, now time.Time) {
	if r.Process != process || r.Phase == phaseNone || r.Phase == phaseExited {
		r.Phase = phaseNone
		r.launch(process, id, now)
	}
	r.Phase = phaseRunning
	if r.FirstStart == nil {
		r.FirstStart = &now
	}
}

// check notes how the health check stands.
func (r *record) check(health report.HealthReport, now time.Time) {
	r.Health = &health
	if health.Status == healthHealthy && r.FirstHealthy == nil {
		r.FirstHealthy = &now
	}
}

// settledAfter is the time after an end in which the runtime's own states, which hold
// the exit code, reach whoever judges it.
const settledAfter = 5 * time.Second

// settled tells whether an end was some time ago.
func (r *record) settled(now time.Time) bool {
	return r.FinishedAt == nil || now.Sub(*r.FinishedAt) >= settledAfter
}

// isAsExpected tells whether the container is as it should be: it runs, healthy when it
// has a check, or it has finished. An end with a code that only the runtime knows
// counts as finished after a while: whoever reads the runtime's states judges it by then.
func (r *record) isAsExpected(about Container, now time.Time) bool {
	switch r.Phase {
	case phaseRunning:
		return !about.checked() || (r.Health != nil && r.Health.Status == healthHealthy)
	case phaseExited:
		finished := r.ExitCode != nil && *r.ExitCode == 0
		if r.ExitCode == nil {
			finished = r.settled(now)
		}
		return finished && r.FirstStart != nil && !about.checked() && !about.restarts(r.ExitCode)
	}
	return false
}

// noteKills takes over how many processes were killed for want of memory.
func (r *record) noteKills(counters handles) {
	if kills, shown := counters.oomKills(); shown {
		r.OOMKills = &kills
	}
}
