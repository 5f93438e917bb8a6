"""Builders of the network around an enclave: addresses, policy, Service, TLSRoute."""
