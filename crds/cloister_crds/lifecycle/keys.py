"""API keys at an enclave's shim, as far as an administrator has to make them possible."""

from collections.abc import Iterator

from cloister_crds.config.model import ServiceConfig
from cloister_crds.problems import Problem

__all__ = ["keys_without_api"]


def keys_without_api(config: ServiceConfig) -> Iterator[Problem]:
    """Tell that a file wants keys where enclaves do not know who checks them.

    Parameters
    ----------
    config
        The parsed file.
    """
    if config.shim.keyed_endpoints:
        yield Problem(
            "shim.authenticated",
            "ApiAddressMissing",
            "shim.authenticated: enclaves do not know where API keys are checked; ask the "
            "administrator to set apiAddress in the operator's settings, or leave it out.",
        )
