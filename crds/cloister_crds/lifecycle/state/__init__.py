"""The state of a Container: observed facts, decisions, conditions, reasons."""
