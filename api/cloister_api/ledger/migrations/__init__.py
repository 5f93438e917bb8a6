"""Migrations of the ledger, in order; run by `cloister_api.ledger.database.migrate`."""
