"""Real servers for tests: registry, git, PostgreSQL, DNS, ACME, Envoy, the shim."""
