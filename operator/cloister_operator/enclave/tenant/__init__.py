"""Builders of an organization's namespace and of the objects that protect it."""
