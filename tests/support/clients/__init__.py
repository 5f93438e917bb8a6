"""Clients and judges of what programs answer."""
