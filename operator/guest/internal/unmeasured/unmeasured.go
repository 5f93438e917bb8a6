// Package unmeasured is what an enclave is told beside its measured documents: what differs from
// request to request, and where things are in the cluster's network.
//
// Whoever runs the cluster chooses it, so it must not decide what an enclave does: it has no path,
// no command, no program, nobody to trust. Each value is what the host could bring about anyway: it
// decides which names lead to an enclave, what is told about it, and where its packets go.
package unmeasured

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"

	"cloister.dev/guest/internal/strictjson"
)

// FileName is the name of the document, beside each document that it completes.
const FileName = "unmeasured.json"

// Version is the version of the document that this guest reads.
const Version = 1

const (
	maxHostnames = 8
	maxHostname  = 253
	maxLabel     = 512
)

var (
	hostPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)+$`)
	textPattern = regexp.MustCompile(`^[^\x00-\x1f\x7f]*$`)
)

// Document is the document.
type Document struct {
	// Version is Version.
	Version int `json:"version"`
	// Hostnames are the host names of the enclave, the public one first.
	Hostnames []string `json:"hostnames"`
	// Labels are what the enclave's metrics say about it.
	Labels Labels `json:"labels"`
}

// Labels are labels of metrics.
type Labels struct {
	// ID is the id of the Container in the API.
	ID string `json:"id"`
	// Image is `owner/name@tag`.
	Image string `json:"image"`
	// CPUType and GPUType are those of the Host; empty if it has none.
	CPUType string `json:"cpuType"`
	GPUType string `json:"gpuType"`
}

// Beside reads and validates the document beside another one.
func Beside(path string) (Document, error) {
	return strictjson.Read[Document](filepath.Join(filepath.Dir(path), FileName))
}

// Domain returns the public host name; empty without one.
func (d Document) Domain() string {
	if len(d.Hostnames) == 0 {
		return ""
	}
	return d.Hostnames[0]
}

// Validate returns an error that names every invalid field.
func (d Document) Validate() error {
	var problems []error
	wrong := func(field, format string, values ...any) {
		problems = append(problems, fmt.Errorf(field+": "+format, values...))
	}
	if d.Version != Version {
		wrong("version", "%d, this guest reads %d; the operator and the guest are of different releases", d.Version, Version)
	}
	if len(d.Hostnames) > maxHostnames {
		wrong("hostnames", "%d, at most %d", len(d.Hostnames), maxHostnames)
	}
	seen := map[string]bool{}
	for index, name := range d.Hostnames {
		if !IsHostname(name) || seen[name] {
			wrong(fmt.Sprintf("hostnames[%d]", index), "%q is not a host name in lower case, or is given twice", name)
		}
		seen[name] = true
	}
	for field, value := range map[string]string{"id": d.Labels.ID, "image": d.Labels.Image, "cpuType": d.Labels.CPUType, "gpuType": d.Labels.GPUType} {
		if len(value) > maxLabel || !textPattern.MatchString(value) {
			wrong("labels."+field, "%q is not a line of at most %d bytes", value, maxLabel)
		}
	}
	return errors.Join(problems...)
}

// IsHostname reports whether a text is a host name in lower case.
func IsHostname(text string) bool { return len(text) <= maxHostname && hostPattern.MatchString(text) }
