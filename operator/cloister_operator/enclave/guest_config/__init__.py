"""Builders of the documents by which the guest's side-cars run."""
