"""A tenant that tries, step by step, to reach what belongs to another organization."""
