"""Code shared by the tests: clusters, servers, clients, builders, faults, waiting."""
