"""What can go wrong when a release is made."""


class ReleaseError(Exception):
    """The release cannot be made; the message says what to do."""
