"""Builders of an enclave's Pod."""
