"""Chaos runs: plan, actions, convergence."""
