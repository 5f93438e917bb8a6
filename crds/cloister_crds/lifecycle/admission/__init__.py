"""Admission of a request: limits, host selection, devices, secrets, keys."""
