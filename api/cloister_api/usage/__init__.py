"""Usage: events are reported, counted exactly once, and queried as sums."""
