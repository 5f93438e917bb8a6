"""Utilization of containers: read from the Metrics API, kept in the ledger, returned as series."""
