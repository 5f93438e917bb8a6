"""Repositories over plain git."""
