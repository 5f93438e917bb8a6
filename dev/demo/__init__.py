"""The demo: from nothing to containers of a real repository that serve HTTP."""
