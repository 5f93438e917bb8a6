"""Certificates of enclaves: which requests are valid, who signs them, the queue of ACME orders.

Used by `cloister_api.services.enclaves`; the keys are generated inside the enclaves.
"""
