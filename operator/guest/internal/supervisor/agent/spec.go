// Package agent is `guest agent`: the sidecar that tracks what runs in an enclave. It
// writes the files of the service directory, maintains the boot stages, serves the
// well-known paths and is the enclave's readiness probe.
//
// It has no privileges: launchers and checkers report to it, see package report. What it
// cannot know it leaves out.
package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"cloister.dev/guest/internal/foundation/measured"
	"cloister.dev/guest/internal/foundation/pattern"
	"cloister.dev/guest/internal/foundation/unmeasured"
)

// Version is the version of the spec that this guest reads.
const Version = 2

// Restart policies of the configuration file.
const (
	restartNo     = "no"
	restartAlways = "always"
	restartStop   = "unless-stopped"
	restartFail   = "on-failure"
)

// Spec describes the enclave to the agent. It contains no secret.
type Spec struct {
	// Version is Version.
	Version int `json:"version"`
	// SocketDirectory has one directory with a report socket for each container.
	SocketDirectory string `json:"socketDirectory"`
	// Directory contains the agent's HTTP sockets, its state and the marker of a
	// completed boot. It is mounted read-only in the shim.
	Directory string `json:"directory"`
	// ServiceDirectory is mounted read-only in the containers as the service directory.
	ServiceDirectory string `json:"serviceDirectory"`
	// Config is the path of the configuration file in the Pod; with other bytes than the measured
	// ones it fails the boot.
	Config string `json:"config"`
	// FDStoreSocket is the socket of `guest keep`; empty means that a restarted agent
	// does not know which containers run until their checkers report or they are started again.
	FDStoreSocket string `json:"keeperSocket,omitempty"`
	// Shim is the address at which the shim accepts connections.
	Shim netip.AddrPort `json:"shim"`
	// GateSocket is created by `guest gate`, which the shim needs; empty means that there is none.
	GateSocket string `json:"gateSocket,omitempty"`
	// BodiesSocket is created by `guest ehbp`, which the shim needs; empty means that there is none.
	BodiesSocket string `json:"bodiesSocket,omitempty"`
	// Probes is the address at which the kubelet requests the readiness of the enclave and of its
	// containers; the packet filter admits only the node.
	Probes netip.AddrPort `json:"probes"`
	// Stages defines how the end of each boot stage is detected, except config,
	// containers and shim, which the agent observes itself.
	Stages map[string]Rule `json:"stages"`
	// Containers are those of the configuration file, in its order.
	Containers []Container `json:"containers"`
	// Attestation configures attestation documents; nil means that there are none.
	Attestation *Attestation `json:"attestation,omitempty"`
	// Metrics is the static part of the metrics.
	Metrics Metrics `json:"metrics"`
	// TerminationFile is where the kubelet reads the termination message.
	TerminationFile string `json:"terminationFile"`

	// Measurement is that of the enclave. It names the spec.
	Measurement measured.Measurement `json:"-"`
	// Unmeasured has the host names, and the labels of the metrics.
	Unmeasured unmeasured.Document `json:"-"`
}

// Attestation is how attestation documents are created.
type Attestation struct {
	// Service is the attestation service of the machine; empty without a TEE.
	Service string `json:"service,omitempty"`
	// BindsKey means that `guest certificate` generates the TLS key, and that evidence binds it. Else
	// the shim generates its keys itself, and evidence binds the one that it presents.
	BindsKey bool `json:"bindsKey"`
}

// Rule defines how the end of a stage is detected; exactly one field is set.
type Rule struct {
	// Skipped is the reason why there is nothing to do.
	Skipped string `json:"skipped,omitempty"`
	// File is created by the sidecar that does the stage's work, once it is done.
	File string `json:"file,omitempty"`
	// Launched are containers: the runtime has done the stage's work before it starts them.
	Launched []string `json:"launched,omitempty"`
	// Network is the status file of `guest net`.
	Network string `json:"network,omitempty"`
	// Models is the status file of `guest models`: its failure fails the boot. Only for
	// the models stage.
	Models string `json:"models,omitempty"`
	// Evidence means that the agent requests evidence of the machine, or finds that
	// there is none. Only for the two attestation stages.
	Evidence bool `json:"evidence,omitempty"`
}

// Container is one container of the configuration file.
type Container struct {
	// Name is its name in the file.
	Name string `json:"name"`
	// Image is the image reference, with digest.
	Image string `json:"image"`
	// Restart is the policy of the file.
	Restart string `json:"restart"`
	// HealthWithinMillis is the time in ms after its start within which its health
	// check must have run at least once; 0 means that it has none.
	HealthWithinMillis int64 `json:"healthWithinMillis"`
	// CheckEveryMillis is the time in ms within which its checker reports again; 0 without one.
	CheckEveryMillis int64 `json:"checkEveryMillis"`
}

// checked reports whether the container has a health check.
func (c Container) checked() bool { return c.HealthWithinMillis > 0 }

// restarts reports whether the policy starts the container again after an exit code.
func (c Container) restarts(exitCode *int) bool {
	switch c.Restart {
	case restartAlways, restartStop:
		return true
	case restartFail:
		return exitCode != nil && *exitCode != 0
	}
	return false
}

// Metrics is the static part of the metrics.
type Metrics struct {
	// CPUs and MemoryBytes are the enclave's size in the file.
	CPUs        int   `json:"cpus"`
	MemoryBytes int64 `json:"memoryBytes"`
	// TokenFile contains the bearer token of the metrics; empty means they are open.
	TokenFile string `json:"tokenFile,omitempty"`
}

var (
	servicePattern = pattern.Lazy(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	namePattern    = pattern.Lazy(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}$`)
)

// ReadSpec reads and validates the measured spec at a path, and what belongs to it.
func ReadSpec(path string) (Spec, error) {
	spec, err := measured.Read[Spec](path)
	if err != nil {
		return Spec{}, err
	}
	if spec.Measurement, err = measured.Load(); err != nil {
		return Spec{}, err
	}
	if !servicePattern().MatchString(spec.Measurement.Service) {
		return Spec{}, fmt.Errorf("%s: service: %q is not a service name", measured.FileName, spec.Measurement.Service)
	}
	spec.Unmeasured, err = unmeasured.ReadFor(path)
	return spec, err
}

// Validate returns an error that names every invalid field.
func (d Spec) Validate() error {
	var problems []error
	wrong := func(field, format string, values ...any) {
		problems = append(problems, fmt.Errorf(field+": "+format, values...))
	}
	if d.Version != Version {
		wrong("version", "%d, this guest reads %d; the operator and the guest are of different releases", d.Version, Version)
	}
	for field, value := range map[string]string{
		"socketDirectory": d.SocketDirectory, "directory": d.Directory, "serviceDirectory": d.ServiceDirectory,
		"config": d.Config, "terminationFile": d.TerminationFile,
	} {
		if !path.IsAbs(value) || path.Clean(value) != value {
			wrong(field, "%q is not an absolute, clean path", value)
		}
	}
	for field, value := range map[string]string{"keeperSocket": d.FDStoreSocket, "metrics.tokenFile": d.Metrics.TokenFile, "gateSocket": d.GateSocket, "bodiesSocket": d.BodiesSocket} {
		if value != "" && !path.IsAbs(value) {
			wrong(field, "%q is not absolute", value)
		}
	}
	if !d.Shim.IsValid() || d.Shim.Port() == 0 {
		wrong("shim", "%s is not an address with a port", d.Shim)
	}
	if !d.Probes.IsValid() || d.Probes.Port() == 0 {
		wrong("probes", "%s is not an address with a port", d.Probes)
	}
	if d.Metrics.CPUs < 1 || d.Metrics.MemoryBytes < 1 {
		wrong("metrics", "cpus and memoryBytes are at least 1")
	}
	return errors.Join(append(problems, d.validateContainers(), d.validateStages())...)
}

func (d Spec) validateContainers() error {
	var problems []error
	seen := map[string]bool{}
	for index, one := range d.Containers {
		field := fmt.Sprintf("containers[%d]", index)
		if !namePattern().MatchString(one.Name) || seen[one.Name] {
			problems = append(problems, fmt.Errorf("%s.name: %q is not a container name, or is listed twice", field, one.Name))
		}
		seen[one.Name] = true
		if one.HealthWithinMillis < 0 || one.checked() != (one.CheckEveryMillis > 0) {
			problems = append(problems, fmt.Errorf("%s: healthWithinMillis %d and checkEveryMillis %d, both positive or both 0",
				field, one.HealthWithinMillis, one.CheckEveryMillis))
		}
		if !slices.Contains([]string{restartNo, restartAlways, restartStop, restartFail}, one.Restart) {
			problems = append(problems, fmt.Errorf("%s.restart: %q is not a restart policy", field, one.Restart))
		}
	}
	if len(d.Containers) == 0 || len(d.Containers) > maxContainers {
		problems = append(problems, fmt.Errorf("containers: %d, between 1 and %d", len(d.Containers), maxContainers))
	}
	return errors.Join(problems...)
}

func (d Spec) validateStages() error {
	var problems []error
	for _, name := range stageOrder {
		_, given := d.Stages[name]
		if own := slices.Contains(ownStages, name); own == given {
			problems = append(problems, fmt.Errorf("stages.%s: needs a rule, unless the agent observes the stage itself", name))
		}
	}
	for name, rule := range d.Stages {
		if !slices.Contains(stageOrder, name) {
			problems = append(problems, fmt.Errorf("stages.%s: is not a stage", name))
		}
		given := 0
		if rule.Evidence {
			given++
			if d.Attestation == nil || (name != stageCPU && name != stageGPU) {
				problems = append(problems, fmt.Errorf("stages.%s.evidence: only for the attestation stages, with attestation", name))
			}
		}
		if rule.Models != "" && name != stageModels {
			problems = append(problems, fmt.Errorf("stages.%s.models: only for the models stage", name))
		}
		for _, text := range []string{rule.Skipped, rule.File, rule.Network, rule.Models, strings.Join(rule.Launched, ",")} {
			if text != "" {
				given++
			}
		}
		if given != 1 {
			problems = append(problems, fmt.Errorf("stages.%s: exactly one of skipped, file, launched, network, models and evidence is given", name))
		}
		for _, container := range rule.Launched {
			if !slices.ContainsFunc(d.Containers, func(one Container) bool { return one.Name == container }) {
				problems = append(problems, fmt.Errorf("stages.%s.launched: there is no container %q", name, container))
			}
		}
	}
	return errors.Join(problems...)
}
