"""The facade: the REST Admin API over the custom resources, and the ledger."""
