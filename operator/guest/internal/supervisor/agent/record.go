package agent

import (
	"crypto/subtle"
	"time"

	"cloister.dev/guest/internal/foundation/report"
)

// Phases of a container.
const (
	// phaseNone: it has not been started yet.
	phaseNone = ""
	// phaseLaunching: its launcher runs.
	phaseLaunching = "launching"
	// phaseRunning: its program runs.
	phaseRunning = "running"
	// phaseExited: its process 1 has exited.
	phaseExited = "ended"
	// phaseUnknown: the agent was restarted and could not adopt the process.
	phaseUnknown = "unknown"
)

// States of a health check, as in package health.
const (
	healthStarting  = "starting"
	healthHealthy   = "healthy"
	healthUnhealthy = "unhealthy"
)

// record is what is known about one container. It survives the agent, in its state file.
type record struct {
	// Phase is one of the phases.
	Phase string `json:"life"`
	// Process identifies process 1 of the last instance uniquely; 0 where the kernel cannot.
	Process uint64 `json:"process,omitempty"`
	// Launches counts the launches that were reported.
	Launches int `json:"launches"`
	// FirstLaunch is the time of the first launch, FirstStart when a program first ran,
	// FirstHealthy when the health check first passed.
	FirstLaunch  *time.Time `json:"firstLaunch,omitempty"`
	FirstStart   *time.Time `json:"firstStart,omitempty"`
	FirstHealthy *time.Time `json:"firstHealthy,omitempty"`
	// StartedAt and FinishedAt are those of the last instance; nil if not known.
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	// ExitCode is the last exit code; nil if there was none or only the runtime knows it.
	ExitCode *int `json:"exitCode,omitempty"`
	// Error is the reason why the last launch failed.
	Error string `json:"error,omitempty"`
	// OOMKills is the number of OOM kills in the last instance; nil if the runtime does not show it.
	OOMKills *int64 `json:"oomKills,omitempty"`
	// ContainerID is the runtime's id of the last instance.
	ContainerID string `json:"containerID,omitempty"`
	// CheckerDigest is the digest of the token of the last instance's checker; empty if it has none.
	CheckerDigest string `json:"checkerDigest,omitempty"`
	// Health is the checker's last report about the last instance, and CheckedAt its time; nil
	// before the first.
	Health    *report.HealthReport `json:"health,omitempty"`
	CheckedAt *time.Time           `json:"checkedAt,omitempty"`
}

// isChecker reports whether a token is that of the last instance's checker.
func (r *record) isChecker(token string) bool {
	return r.CheckerDigest != "" && subtle.ConstantTimeCompare([]byte(report.TokenDigest(token)), []byte(r.CheckerDigest)) == 1
}

// launch records that a launcher runs. A launcher that reports a second time, because
// the agent exited before it responded, is the same launch.
func (r *record) launch(process uint64, id string, now time.Time) {
	if r.Phase == phaseLaunching && process != 0 && r.Process == process {
		return
	}
	r.Phase, r.Process, r.ContainerID = phaseLaunching, process, id
	r.Launches++
	if r.FirstLaunch == nil {
		r.FirstLaunch = &now
	}
	r.StartedAt, r.FinishedAt, r.ExitCode, r.OOMKills, r.Health, r.CheckedAt, r.Error, r.CheckerDigest = nil, nil, nil, nil, nil, nil, "", ""
}

// start records that the program runs.
func (r *record) start(now time.Time) {
	if r.Phase != phaseLaunching {
		return
	}
	r.Phase, r.StartedAt = phaseRunning, &now
	if r.FirstStart == nil {
		r.FirstStart = &now
	}
}

// fail records why a launch failed.
func (r *record) fail(text string, exitCode int) {
	if r.Phase == phaseLaunching || r.Phase == phaseExited {
		r.Error, r.ExitCode = text, &exitCode
	}
}

// end records that process 1 has exited; a nil time means that the time is not known.
func (r *record) end(at *time.Time) {
	if r.Phase != phaseExited {
		r.Phase, r.FinishedAt = phaseExited, at
	}
}

// adopt records a process that already ran when the agent learned of it. Its start time
// is known only if the record is about the same process.
func (r *record) adopt(process uint64, id string, now time.Time) {
	if r.Process != process || r.Phase == phaseNone || r.Phase == phaseExited {
		r.Phase = phaseNone
		r.launch(process, id, now)
	}
	r.Phase = phaseRunning
	if r.FirstStart == nil {
		r.FirstStart = &now
	}
	if r.Health != nil {
		// Its checker could not report while no agent ran.
		r.CheckedAt = &now
	}
}

// check records the state of the health check.
func (r *record) check(health report.HealthReport, now time.Time) {
	r.Health, r.CheckedAt = &health, &now
	if health.Status == healthHealthy && r.FirstHealthy == nil {
		r.FirstHealthy = &now
	}
}

// isSilent reports whether the checker of a running container no longer reports: a process of the
// container has killed or stopped it. The container then counts as unhealthy.
func (r *record) isSilent(about Container, now time.Time) bool {
	within := time.Duration(about.CheckEveryMillis) * time.Millisecond
	return r.Phase == phaseRunning && r.CheckedAt != nil && now.Sub(*r.CheckedAt) > within
}

// settledAfter is the time after an exit in which the runtime's own states, which have
// the exit code, reach the operator.
const settledAfter = 5 * time.Second

// settled reports whether the exit was more than settledAfter ago.
func (r *record) settled(now time.Time) bool {
	return r.FinishedAt == nil || now.Sub(*r.FinishedAt) >= settledAfter
}

// isAsExpected reports whether the container runs, healthy if it has a check, or has
// finished. An exit with a code that only the runtime knows counts as finished after
// settledAfter: the operator, which reads the runtime's states, has judged it by then.
func (r *record) isAsExpected(about Container, now time.Time) bool {
	switch r.Phase {
	case phaseRunning:
		return !about.checked() || (r.Health != nil && r.Health.Status == healthHealthy && !r.isSilent(about, now))
	case phaseExited:
		finished := r.ExitCode != nil && *r.ExitCode == 0
		if r.ExitCode == nil {
			finished = r.settled(now)
		}
		return finished && r.FirstStart != nil && !about.checked() && !about.restarts(r.ExitCode)
	}
	return false
}

// noteKills records the number of OOM kills.
func (r *record) noteKills(counters handles) {
	if kills, shown := counters.oomKills(); shown {
		r.OOMKills = &kills
	}
}
