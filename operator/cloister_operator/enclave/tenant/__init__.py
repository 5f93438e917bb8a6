"""Builders of an organization's namespace and of what guards it."""
