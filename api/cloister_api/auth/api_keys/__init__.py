"""The key check: decides from memory whether a regular key may be used, on the inference path.

Called by the shims of enclaves (spec 25.4). Nothing here writes synchronously.
"""
