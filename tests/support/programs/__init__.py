"""Our own programs as processes for tests."""
