"""Builders of the guest's sidecars and of the documents that configure them."""
