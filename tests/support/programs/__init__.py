"""Cloister's programs as processes for tests."""
