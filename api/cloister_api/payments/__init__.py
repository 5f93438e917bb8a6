"""The payment processor, Stripe: what customers paid, and which subscriptions are active.

Nothing of it is kept in the ledger: transactions are read on request, and active subscriptions are
in the Organization's status.
"""
