"""Builders of the guest's side-cars and of the documents that configure them."""
