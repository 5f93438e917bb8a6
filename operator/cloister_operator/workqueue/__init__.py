"""The work queue: keys, the triggers that enqueue them, backoff, status throttle."""
