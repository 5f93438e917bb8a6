"""Benchmarks: what is measured, and against which other way of doing it."""
