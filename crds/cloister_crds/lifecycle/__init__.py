"""The lifecycle of a Container as both programs evaluate it: facts, reasons, admission. Pure."""
