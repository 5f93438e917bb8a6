"""Commands of the facade, found by `cloister` through entry points."""
