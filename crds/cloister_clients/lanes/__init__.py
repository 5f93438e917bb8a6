"""Lanes: where lookups outside of the cluster wait for their turn, in both programs."""
