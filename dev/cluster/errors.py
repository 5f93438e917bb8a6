"""The one error of the local cluster: something that a person must do or know."""

__all__ = ["LocalClusterError"]


class LocalClusterError(Exception):
    """Why the local cluster cannot do what was asked, and what to do about it."""
