"""Reconcilers: gather what is known of an object, decide, apply the actions, report the status.

Each module holds the reconciler of one kind; `cloister_operator.process.dispatcher` calls it by the
key's kind. All are level-triggered: they act on the observed state, never on the event.
"""
