"""What every HTTP request passes: middleware, access log, metrics, strict JSON."""
