"""The state of a Container: observed facts, conditions, reasons."""
