"""Utilization of containers: read from the kubelets, kept in the ledger, told as series."""
