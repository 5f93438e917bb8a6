"""Ports of an enclave's Pod."""

__all__ = ["SHIM_PORT", "SSH_PORT"]

SHIM_PORT = 8443
"""Port that the shim listens on in the Pod; the Service maps 443 to it."""
SSH_PORT = 8422
"""Port of ``guest ssh`` in the Pod of a debug enclave with SSH."""
