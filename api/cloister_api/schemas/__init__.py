"""Bodies of requests and responses: snake_case JSON (spec 20)."""
