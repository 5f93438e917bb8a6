// Package netattach is the conversation between a container's launcher and
// `guest net`: one socket for each container, one JSON document for each
// message, a namespace as a descriptor beside it.
//
// There is no secret in it. Which container asks is known from the socket, and a
// namespace is accepted only when it proves to be a new one of this Pod, so that
// whoever reaches the socket later has nothing to offer.
package netattach

import (
	"errors"
	"net/netip"
)

// SocketName is the name of the socket in a container's wiring directory.
const SocketName = "wiring.sock"

// What a launcher or probe asks for.
const (
	// AskWire hands over a fresh namespace and asks for its wiring.
	RequestAttach = "wire"
	// AskWired says that the wiring given is set up.
	RequestAttached = "wired"
	// AskNamespace asks for the namespace of the container that runs.
	RequestNamespace = "namespace"
)

// What `guest net` answers.
const (
	// AnswerConfigure: set up these interfaces in the namespace handed over.
	ResponseConfigure = "configure"
	// AnswerJoin: enter the namespace that comes with the answer instead.
	ResponseJoin = "join"
	// AnswerReady: the wiring is in force.
	ResponseReady = "ready"
	// AnswerRefused: see Reason.
	ResponseRefused = "refused"
)

// ErrRefused is returned when `guest net` refuses; the message says why.
var ErrRefused = errors.New("the enclave's network refused")

// Request is what a launcher or probe sends.
type Request struct {
	// Ask is one of the Ask words.
	Kind string `json:"ask"`
}

// Interface is one device of a container, made by `guest net`, set up by the launcher.
type Interface struct {
	// Name is the device's name inside.
	Name string `json:"name"`
	// Address is the address with the length of the network.
	Address netip.Prefix `json:"address"`
	// Gateway is the Pod's address on the network.
	Gateway netip.Addr `json:"gateway"`
	// Default tells that the way to the internet leads through this device.
	Default bool `json:"default"`
}

// Response is what `guest net` sends.
type Response struct {
	// Answer is one of the Answer words.
	Kind string `json:"answer"`
	// Reason tells why it refused.
	Reason string `json:"reason,omitempty"`
	// Interfaces are the devices to set up; none for a container without network.
	Interfaces []Interface `json:"interfaces,omitempty"`
	// Nameserver answers names; absent for a container without network.
	Nameserver netip.Addr `json:"nameserver,omitzero"`
}
