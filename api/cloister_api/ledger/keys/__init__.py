"""Keys in the ledger: admin keys, API keys, reporters, and the material that protects them."""
