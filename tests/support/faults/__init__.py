"""Faults between a program and the API server, and crashing programs."""
