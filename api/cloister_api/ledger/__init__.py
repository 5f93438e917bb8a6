"""The ledger: what is not desired state, in a SQL database. Admin keys and the audit trail.

Used by the facade's services and commands. Nothing about a container is kept here.
"""
