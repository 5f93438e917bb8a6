// Package models is `guest models`: it verifies the model weights of a configuration file
// against their root hashes and unpacks their files in memory, before any container starts.
//
// It runs as its own user without any capability and without a network. It reads the
// untrusted model store and writes to one volume, which is mounted read-only in the
// containers.
package models

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"slices"

	"cloister.dev/guest/internal/foundation/measured"
	"cloister.dev/guest/internal/foundation/pattern"
	"cloister.dev/guest/internal/weights/verity"
)

// Version is the version of the spec that this guest reads.
const Version = 1

// maxModels is the number of models that a configuration file may have.
const maxModels = 24

// Spec is the configuration of `guest models`.
type Spec struct {
	// Version is Version.
	Version int `json:"version"`
	// Store is the directory of the images, named ROOTHASH.mpk.
	Store string `json:"store"`
	// Target is the directory in which each model gets a directory mpk-ROOTHASH.
	Target string `json:"target"`
	// Status is the path of the status file, which the agent reads.
	Status string `json:"status"`
	// Models are those of the configuration file, in its order.
	Models []Model `json:"models"`
}

// Model is an entry of `models` in a configuration file.
type Model struct {
	// Name is the model's name.
	Name string `json:"name"`
	// Repo is owner/model@commit; its digest is the salt of the hash tree.
	Repo string `json:"repo"`
	// MPK is ROOTHASH_OFFSET_UUID.
	MPK string `json:"mpk"`
}

var (
	namePattern = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	repoPattern = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}@[0-9a-f]{40}$`)
)

// ReadSpec reads and validates the spec at a path.
func ReadSpec(file string) (Spec, error) { return measured.Read[Spec](file) }

// Validate returns an error that names every invalid field.
func (d Spec) Validate() error {
	var problems []error
	wrong := func(field, format string, values ...any) {
		problems = append(problems, fmt.Errorf(field+": "+format, values...))
	}
	if d.Version != Version {
		wrong("version", "%d, this guest reads %d; the operator and the guest are of different releases", d.Version, Version)
	}
	for field, value := range map[string]string{"store": d.Store, "target": d.Target, "status": d.Status} {
		if !path.IsAbs(value) || path.Clean(value) != value || value == "/" {
			wrong(field, "%q is not an absolute, clean path", value)
		}
	}
	if len(d.Models) == 0 || len(d.Models) > maxModels {
		wrong("models", "%d entries, expected 1 to %d", len(d.Models), maxModels)
	}
	for index, model := range d.Models {
		field := fmt.Sprintf("models[%d].", index)
		if !namePattern().MatchString(model.Name) {
			wrong(field+"name", "%q is not a model name", model.Name)
		}
		if !repoPattern().MatchString(model.Repo) {
			wrong(field+"repo", "%q is not owner/model@commit", model.Repo)
		}
		reference, err := verity.ParseReference(model.MPK)
		if err != nil {
			wrong(field+"mpk", "%w", err)
		}
		if slices.ContainsFunc(d.Models[:index], func(other Model) bool { return other.root() == reference.Root }) {
			wrong(field+"mpk", "an earlier model has this root hash")
		}
	}
	return errors.Join(problems...)
}

// root returns the root hash of a model; of an invalid MPK, zeros.
func (m Model) root() [verity.DigestSize]byte {
	reference, err := verity.ParseReference(m.MPK)
	if err != nil {
		return [verity.DigestSize]byte{}
	}
	return reference.Root
}

// salt returns the salt of the model's hash tree: the format derives it from the origin of
// the weights, so that another repository or commit is another image.
func (m Model) salt() []byte {
	digest := sha256.Sum256([]byte(m.Repo))
	return digest[:]
}
