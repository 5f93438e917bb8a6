"""Why the machine cannot be made or does not start."""

__all__ = ["MachineError"]


class MachineError(Exception):
    """The machine cannot be made, or does not start; the message has the remedy."""
