"""Builders of the objects that an Enclave consists of: pure functions from models to manifests."""
