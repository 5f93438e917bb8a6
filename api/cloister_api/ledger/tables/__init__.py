"""The tables of the ledger as SQLAlchemy Core metadata, one module per subject."""
