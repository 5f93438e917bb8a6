"""Lifecycles of Containers in steps, and the end states that they reach."""
