"""Backup of an installation into one archive, and its restore into an empty cluster."""
