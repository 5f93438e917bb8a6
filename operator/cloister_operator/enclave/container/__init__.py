"""Builders of one container of the file: its document, environment, devices, probe."""
