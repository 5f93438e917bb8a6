"""Builds services from what they are built on."""
