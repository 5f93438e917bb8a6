"""Ports of an enclave's Pod."""

__all__ = ["SHIM_PORT"]

SHIM_PORT = 8443
"""Port that the shim listens on in the Pod; the Service maps 443 to it."""
