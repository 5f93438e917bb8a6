// Package unmeasured is what an enclave reads in addition to its measured documents: what differs from
// request to request, and where things are in the cluster's network.
//
// The cluster's operator chooses it, so it must not decide what an enclave does: it has no path,
// no command, no program, nothing to trust. Each value is what the host could bring about anyway: it
// decides which names lead to an enclave, what is reported about it, and where its packets go.
package unmeasured

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"cloister.dev/guest/internal/foundation/pattern"
	"cloister.dev/guest/internal/foundation/strictjson"
)

// FileName is the name of the document, next to each document that it completes.
const FileName = "unmeasured.json"

// Version is the version of the document that this guest reads.
const Version = 1

const (
	maxHostnames = 8
	maxHostname  = 253
	maxLabel     = 512
	maxDenied    = 4096
	maxAddresses = 64
)

var (
	hostPattern = pattern.Lazy(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)+$`)
	textPattern = pattern.Lazy(`^[^\x00-\x1f\x7f]*$`)
)

// Document is the document.
type Document struct {
	// Version is Version.
	Version int `json:"version"`
	// Hostnames are the host names of the enclave, the public one first.
	Hostnames []string `json:"hostnames"`
	// KeyDomain is the host name for which API keys must be allowed: the generated one, which an
	// enclave never loses.
	KeyDomain string `json:"keyDomain"`
	// Labels are what the enclave's metrics report about it.
	Labels Labels `json:"labels"`
	// SSHKeys are the keys that may log in; only to a debug enclave, whose measurement allows it.
	SSHKeys []SSHKey `json:"sshKeys,omitempty"`
	// Cluster is where things are in the cluster's network.
	Cluster Cluster `json:"cluster"`
}

// SSHKey is a public key.
type SSHKey struct {
	// Name is the name of the SSHKey, for the log.
	Name string `json:"name"`
	// PublicKey is one line of an OpenSSH public key file.
	PublicKey string `json:"publicKey"`
}

// Cluster is where things are in the cluster's network. The host carries every packet of an enclave
// and can lead it elsewhere: what is said here is what an enclave addresses, not whom it trusts.
type Cluster struct {
	// Block is the range of the enclave's own networks, one of package netplan's.
	Block netip.Prefix `json:"block"`
	// Denied are ranges that no network reaches, in addition to those that none ever reaches.
	Denied []netip.Prefix `json:"denied"`
	// ProbeSources are addresses from which the kubelet may ask whether the enclave is ready, in addition to the
	// node's own and the Pod's gateway.
	ProbeSources []netip.Addr `json:"probeSources,omitempty"`
	// Resolvers are name servers for public names, queried in this order.
	Resolvers []netip.AddrPort `json:"resolvers"`
	// Refused are domains that are never queried there: the cluster's own.
	Refused []string `json:"refused,omitempty"`
	// API are the addresses of the API's host. Name, port and authorities of the API are measured.
	API []netip.Addr `json:"api,omitempty"`
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

// ReadFor reads and validates the document in the directory of another one.
func ReadFor(path string) (Document, error) {
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
		if len(value) > maxLabel || !textPattern().MatchString(value) {
			wrong("labels."+field, "%q is not a line of at most %d bytes", value, maxLabel)
		}
	}
	if d.KeyDomain != "" && !IsHostname(d.KeyDomain) {
		wrong("keyDomain", "%q is not a host name in lower case", d.KeyDomain)
	}
	return errors.Join(append(problems, d.Cluster.validate())...)
}

func (c Cluster) validate() error {
	var problems []error
	wrong := func(field, format string, values ...any) {
		problems = append(problems, fmt.Errorf("cluster."+field+": "+format, values...))
	}
	if len(c.Denied) > maxDenied || len(c.ProbeSources) > maxAddresses || len(c.Resolvers) > maxAddresses || len(c.API) > maxAddresses {
		wrong("denied, probeSources, resolvers, api", "at most %d ranges and %d addresses", maxDenied, maxAddresses)
	}
	for index, address := range c.API {
		if !address.Is4() {
			wrong(fmt.Sprintf("api[%d]", index), "%s is not an IPv4 address", address)
		}
	}
	return errors.Join(problems...)
}

// IsHostname reports whether a text is a host name in lower case.
func IsHostname(text string) bool { return len(text) <= maxHostname && hostPattern().MatchString(text) }
