"""One pass over one object: gather, decide, apply, report.

Each module holds the pass of one kind; `cloister_operator.process.dispatcher` calls them by the
key's kind.
"""
