"""What can go wrong when images are built."""


class ImageError(Exception):
    """An image cannot be built; the message says what to do."""
