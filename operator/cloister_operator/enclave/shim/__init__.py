"""Builders of the configuration of the shim, the TLS front of an enclave."""
