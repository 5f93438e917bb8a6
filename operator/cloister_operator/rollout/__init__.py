"""Rollout decisions: blue-green, Recreate strategy, rollback, node drain, cleanup. Pure."""
