"""Stand-ins for what cannot be had on a test machine."""
