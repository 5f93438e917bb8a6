"""Ports of an enclave's Pod."""

__all__ = ["PROBE_PORT", "SHIM_PORT", "SSH_PORT"]

PROBE_PORT = 8441
"""Port of the enclave's agent for the kubelet's probes; the packet filter opens it to the node."""
SHIM_PORT = 8443
"""Port that the shim listens on in the Pod; the Service maps 443 to it."""
SSH_PORT = 8422
"""Port of ``guest ssh`` in the Pod of a debug enclave with SSH."""
