"""Clusters that tests share, and clients of their API servers."""
