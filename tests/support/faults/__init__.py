"""Faults between a program and the API server, and programs that die."""
