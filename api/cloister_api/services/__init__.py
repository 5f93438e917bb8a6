"""What the routes ask for: checks, writes of custom resources, reads of the copies."""
