package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Statuses of boot stages.
const (
	statusPending = "pending"
	statusOK      = "ok"
	statusSkipped = "skipped"
	statusWarning = "warning"
	statusFailed  = "failed"
)

// Names of the boot stages that the agent observes itself.
const (
	stageConfig     = "config"
	stageContainers = "containers"
	stageShim       = "shim"
)

// stageModels is the stage that `guest models` reports.
const stageModels = "models"

// stageOrder is the order in which stages are listed.
var stageOrder = []string{stageConfig, "network", "identity", stageCPU, stageGPU, "certificate",
	"secrets", "registry-auth", "firewall", stageModels, stageContainers, stageShim}

var ownStages = []string{stageConfig, stageContainers, stageShim}

const maxContainers = 64

// Stage is one stage of the boot as clients see it.
type Stage struct {
	Name       string  `json:"name"`
	Status     string  `json:"status"`
	DurationNS int64   `json:"duration_ns"`
	Detail     string  `json:"detail,omitempty"`
	Stages     []Stage `json:"stages,omitempty"`
}

// Stages is the whole document.
type Stages struct {
	Stages      []Stage    `json:"stages"`
	StartedAt   time.Time  `json:"started_at"`
	CompletedAt *time.Time `json:"completed_at"`
}

// outcome is how a stage ended, and when.
type outcome struct {
	Status string    `json:"status"`
	Detail string    `json:"detail,omitempty"`
	At     time.Time `json:"at"`
	// Reason is the reason with which the stage fails the boot; empty unless it does.
	Reason string `json:"-"`
}

// failure is why the boot failed.
type failure struct {
	// Reason is one of the operator's documented reasons.
	Reason string `json:"reason"`
	// Message is human-readable.
	Message string `json:"message"`
}

// Reasons for which a boot fails.
const (
	reasonBoot   = "BootFailed"
	reasonHealth = "HealthcheckFailed"
)

// boot is the progress of the boot. It survives the agent, in its state file.
type boot struct {
	StartedAt   time.Time  `json:"startedAt"`
	CompletedAt *time.Time `json:"completedAt,omitempty"`
	Failure     *failure   `json:"failure,omitempty"`
	// Reported means that the failure is in the termination message.
	Reported bool               `json:"told,omitempty"`
	Outcomes map[string]outcome `json:"outcomes"`
}

// settle records how a stage ended. The first result is final.
func (b *boot) settle(stage, status, detail string, now time.Time) {
	if _, known := b.Outcomes[stage]; !known {
		b.Outcomes[stage] = outcome{Status: status, Detail: detail, At: now}
	}
}

// fail fails the boot.
func (b *boot) fail(stage, reason, message string, now time.Time) {
	b.settle(stage, statusFailed, message, now)
	if b.Failure == nil && b.CompletedAt == nil {
		b.Failure = &failure{Reason: reason, Message: message}
	}
}

// isOver reports whether the boot has completed or failed.
func (b *boot) isOver() bool { return b.CompletedAt != nil || b.Failure != nil }

// checkContainers checks the containers of a boot that is not over. The boot fails with
// the first container that cannot recover automatically.
func (b *boot) checkContainers(containers []Container, records map[string]*record, now time.Time) {
	if b.isOver() {
		return
	}
	well := true
	for _, one := range containers {
		known := records[one.Name]
		reason, message, output := failureOf(one, known, now)
		if message != "" {
			b.fail(stageContainers, reason, message, now)
			b.settle(stageContainers+"/"+one.Name, statusFailed, message, now)
			b.Failure.Message += output
			return
		}
		well = well && known.FirstStart != nil && known.isAsExpected(one, now)
	}
	if well {
		b.settle(stageContainers, statusOK, "", now)
	}
}

// failureOf returns the reason and message with which a container fails the boot, empty
// if it does not, and what of the tenant's output belongs to it: stages are public, so that
// goes to the owner's status only.
func failureOf(about Container, known *record, now time.Time) (reason, message, output string) {
	if known.Health != nil && known.Health.Status == healthUnhealthy && known.Phase == phaseRunning {
		output = strings.TrimSpace(known.Health.Output)
		if output == "" {
			output = "nothing"
		}
		return reasonHealth, fmt.Sprintf("Container %s is unhealthy: its health check failed %d times in a row.",
			about.Name, known.Health.FailingStreak), " Its last output: " + output
	}
	if known.isSilent(about, now) {
		return reasonHealth, fmt.Sprintf("The health check of container %s has not reported since %s: a process of the container killed or stopped its checker.",
			about.Name, known.CheckedAt.Format(time.RFC3339)), ""
	}
	within := time.Duration(about.HealthWithinMillis) * time.Millisecond
	if about.checked() && known.Phase == phaseRunning && known.Health == nil && known.StartedAt != nil && now.Sub(*known.StartedAt) > within {
		return reasonHealth, fmt.Sprintf("The health check of container %s was not run within %s of its start: a process of the container killed or stopped its checker.", about.Name, within), ""
	}
	if known.Phase != phaseExited || about.restarts(known.ExitCode) || (about.Restart == restartFail && known.ExitCode == nil) {
		return "", "", ""
	}
	switch {
	case known.Error != "":
		return reasonBoot, fmt.Sprintf("Container %s could not be started: %s", about.Name, known.Error), ""
	// The runtime's states, which have the exit code, are more exact and take precedence.
	case about.checked() && known.settled(now):
		return reasonBoot, fmt.Sprintf("Container %s ended before it was healthy; see its log.", about.Name), ""
	}
	return "", "", ""
}

// complete completes the boot if every stage is over and none has failed.
func (b *boot) complete(now time.Time) {
	if b.isOver() {
		return
	}
	for _, stage := range stageOrder {
		if noted, known := b.Outcomes[stage]; !known || noted.Status == statusFailed {
			return
		}
	}
	b.CompletedAt = &now
}

// stages returns the stages as clients see them. A stage lasts from the start of the
// boot, a container's stage from the end of the stage before it.
func (b *boot) stages(containers []Container, records map[string]*record, now time.Time) Stages {
	spec := Stages{StartedAt: b.StartedAt, CompletedAt: b.CompletedAt}
	for _, name := range stageOrder {
		stage := b.stage(name, now)
		if name == stageContainers {
			for _, one := range containers {
				stage.Stages = append(stage.Stages, b.container(one, records[one.Name], now))
			}
		}
		spec.Stages = append(spec.Stages, stage)
	}
	return spec
}

func (b *boot) stage(name string, now time.Time) Stage {
	noted, known := b.Outcomes[name]
	switch {
	case !known:
		return Stage{Name: name, Status: statusPending, DurationNS: now.Sub(b.StartedAt).Nanoseconds()}
	case noted.Status == statusSkipped:
		return Stage{Name: name, Status: statusSkipped, Detail: noted.Detail}
	}
	return Stage{Name: name, Status: noted.Status, Detail: noted.Detail, DurationNS: noted.At.Sub(b.StartedAt).Nanoseconds()}
}

// container returns the stages of one container: pull lasts until its launcher runs
// and includes all that the runtime does before; start until its program runs; healthy
// until its health check passes.
func (b *boot) container(about Container, known *record, now time.Time) Stage {
	steps := []Stage{
		step("pull", &b.StartedAt, known.FirstLaunch, now),
		step("start", known.FirstLaunch, known.FirstStart, now),
		step("healthy", known.FirstStart, known.FirstHealthy, now),
	}
	if !about.checked() {
		steps[2] = Stage{Name: "healthy", Status: statusSkipped, Detail: "The file has no health check for it."}
	}
	if noted, failed := b.Outcomes[stageContainers+"/"+about.Name]; failed {
		at := slices.IndexFunc(steps, func(one Stage) bool { return one.Status == statusPending })
		if at >= 0 {
			steps[at].Status, steps[at].Detail = statusFailed, noted.Detail
		}
	}
	whole := Stage{Name: about.Name, Status: statusOK, Stages: steps}
	for _, one := range steps {
		whole.DurationNS += one.DurationNS
		if one.Status == statusPending || one.Status == statusFailed {
			whole.Status, whole.Detail = one.Status, one.Detail
			break
		}
	}
	return whole
}

// step returns the stage between two times; nil means not yet.
func step(name string, from, to *time.Time, now time.Time) Stage {
	switch {
	case from == nil:
		return Stage{Name: name, Status: statusPending}
	case to == nil:
		return Stage{Name: name, Status: statusPending, DurationNS: now.Sub(*from).Nanoseconds()}
	}
	return Stage{Name: name, Status: statusOK, DurationNS: to.Sub(*from).Nanoseconds()}
}
