"""The one error of the local cluster."""


class LocalClusterError(Exception):
    """Why the local cluster cannot do what was requested, and the remedy."""
