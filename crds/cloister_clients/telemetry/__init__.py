"""What both programs report of themselves in the same form: log lines, metrics."""
