"""Cloister as users install it: chart and images of one version, on a cluster with a real node."""
