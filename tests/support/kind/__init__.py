"""A Docker of the tests' own, in which kind makes clusters."""
