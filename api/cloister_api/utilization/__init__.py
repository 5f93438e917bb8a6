"""Utilization of containers: scraped from kubelets, kept in the ledger, returned as series."""
