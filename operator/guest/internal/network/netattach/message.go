// Package netattach is the protocol between a container's launcher and `guest net`, by
// which a network namespace is attached: one socket for each container, one JSON document
// for each message, a namespace as a descriptor with it.
//
// It has no secret. The container is identified by the socket, and a namespace is accepted
// only if it is a new one of this Pod, so that a process that reaches the socket later has
// none to send.
package netattach

import (
	"errors"
	"net/netip"
)

// SocketName is the name of the socket in a container's wiring directory.
const SocketName = "wiring.sock"

// Kinds of requests of a launcher.
const (
	// RequestAttach sends a new namespace to be attached.
	RequestAttach = "wire"
	// RequestAttached confirms that the interfaces are configured.
	RequestAttached = "wired"
)

// Kinds of responses of `guest net`.
const (
	// ResponseConfigure: configure these interfaces in the sent namespace.
	ResponseConfigure = "configure"
	// ResponseJoin: enter the namespace that is sent with the response instead.
	ResponseJoin = "join"
	// ResponseReady: the namespace is attached.
	ResponseReady = "ready"
	// ResponseRefused: see Reason.
	ResponseRefused = "refused"
)

// ErrRefused is returned if `guest net` refuses; the message has the reason.
var ErrRefused = errors.New("the enclave's network refused")

// Request is the message of a launcher.
type Request struct {
	// Kind is one of the Request constants.
	Kind string `json:"ask"`
}

// Interface is one device of a container, created by `guest net`, configured by the launcher.
type Interface struct {
	// Name is the device's name inside.
	Name string `json:"name"`
	// Address is the address with the prefix length of the network.
	Address netip.Prefix `json:"address"`
	// Gateway is the Pod's address on the network.
	Gateway netip.Addr `json:"gateway"`
	// Default means that the default route leads through this device.
	Default bool `json:"default"`
}

// Response is the message of `guest net`.
type Response struct {
	// Kind is one of the Response constants.
	Kind string `json:"answer"`
	// Reason is why it refused.
	Reason string `json:"reason,omitempty"`
	// Interfaces are the devices to configure; none for a container without network.
	Interfaces []Interface `json:"interfaces,omitempty"`
	// Nameserver is the address of the name server; absent for a container without network.
	Nameserver netip.Addr `json:"nameserver,omitzero"`
}
