"""Containers of an organization: reads, creates, updates, and how a request is judged."""
