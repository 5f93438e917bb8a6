"""Certificates of enclaves: what may be asked for, who signs it, and the queue of an ACME account.

Used by `cloister_api.services.certificates`; the keys are made inside the enclaves.
"""
