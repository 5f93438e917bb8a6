"""What the tests share: clusters, servers, waiting.."""
