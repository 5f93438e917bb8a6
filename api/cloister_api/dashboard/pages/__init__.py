"""The pages, a module for each part of the dashboard."""
