"""The one error of the local cluster: something that a person must do or know."""

__all__ = ["Trouble"]


class Trouble(Exception):  # noqa: N818 - it is said to a person, as a sentence
    """Why the local cluster cannot do what was asked, and what to do about it."""
