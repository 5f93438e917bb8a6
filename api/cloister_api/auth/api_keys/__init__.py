"""The key check: answers from memory whether a regular key may be used, on the path of inference.

Asked by the shims of enclaves (client contract, section 4). Nothing here writes synchronously.
"""
