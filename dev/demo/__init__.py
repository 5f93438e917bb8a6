"""The demo: from an empty machine to containers of a git repository that serve HTTPS."""
