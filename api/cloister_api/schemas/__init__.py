"""Bodies of requests and responses: snake_case JSON (client contract)."""
