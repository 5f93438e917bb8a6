"""The payment processor, Stripe: what customers paid, and which subscriptions are active.

Nothing of it is kept in the ledger: transactions are read when they are asked for, and what is
subscribed to stands in the Organization's status.
"""
