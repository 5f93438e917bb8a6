"""What the process reports of itself: health, liveness, metrics, logs."""
