"""Builders of objects for tests."""
