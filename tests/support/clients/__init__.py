"""Clients of the programs, and checks of their responses."""
