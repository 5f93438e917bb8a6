"""Usage: reports of events come in, are counted once, and are asked for in sums."""
