"""Commands that the operator adds to ``cloister``."""
