"""The one error of the local cluster: a sentence that says what to do."""

__all__ = ["ClusterError"]


class ClusterError(Exception):
    """Something stands in the way of the local cluster; the message says what and the remedy."""
