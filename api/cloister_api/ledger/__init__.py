"""The ledger: keys, the audit trail, usage and certificate orders in a SQL database.

It holds what is not desired state; that is in custom resources. Used by the facade's services and
commands.
"""
