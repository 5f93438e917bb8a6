"""The rules of the house that no other tool checks, and the files that are written by programs."""
