"""What becomes of a Container: states, reasons, conditions, and the decision of each pass. Pure."""
