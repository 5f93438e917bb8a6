"""Checks of API keys at an enclave's shim: whether enclaves can reach the API.

The operator knows the API's address and writes the condition ``ApiReachable`` of each Host; checks
of a file read it there. Sources: docs/configuration-file.md, "The shim"; docs/enclave.md.
"""

from collections.abc import Iterator

from cloister_crds.config.model import ServiceConfig
from cloister_crds.kinds.host import Host
from cloister_crds.kinds.meta import ConditionStatus
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, condition
from cloister_crds.problems import Problem

__all__ = ["API_REACHABLE", "api_reachable_condition", "keys_checked_condition", "keys_without_api"]

API_REACHABLE = "ApiReachable"
"""Condition of a Host: whether its enclaves can reach the API."""
_MISSING = "ApiAddressMissing"


def api_reachable_condition(address: str | None, error: str) -> ConditionUpdate:
    """Return the condition of a Host about whether enclaves can reach the API.

    Parameters
    ----------
    address
        The setting ``apiAddress``; None = it is not set.
    error
        Why it is not reached at present, as a sentence; empty = it is.
    """
    if address is None:
        text = (
            "The operator has no apiAddress: files that require API keys are refused, and no "
            "certificates are signed. Set apiAddress in the operator's settings."
        )
        return ConditionUpdate(API_REACHABLE, status=False, reason=_MISSING, message=text)
    if error:
        return ConditionUpdate(API_REACHABLE, status=False, reason="ApiUnreachable", message=error)
    text = f"The API responds at {address}."
    return ConditionUpdate(API_REACHABLE, status=True, reason="ApiAnswers", message=text)


def keys_without_api(config: ServiceConfig, host: Host | None, *, known: bool) -> Iterator[Problem]:
    """Yield a problem if a file requires keys and enclaves do not know the API's address.

    Parameters
    ----------
    config
        The parsed file.
    host
        The Host that it would run on; None = not known.
    known
        False when the caller has the operator's settings and ``apiAddress`` is not set; else the
        Host's condition decides.
    """
    reachable = condition(host.status.conditions, API_REACHABLE) if host is not None else None
    missing = not known or (reachable is not None and reachable.reason == _MISSING)
    if config.shim.keyed_endpoints and missing:
        yield Problem(
            "shim.authenticated",
            _MISSING,
            "shim.authenticated: enclaves do not know where API keys are checked; ask the "
            "administrator to set apiAddress in the operator's settings, or leave it out.",
        )


def keys_checked_condition(host: Host) -> ConditionUpdate | None:
    """Return whether the keys of an enclave that requires them can be checked now.

    Returns
    -------
    ConditionUpdate | None
        The condition ``KeysChecked`` of a Container; None = the Host has no condition yet.
    """
    reachable = condition(host.status.conditions, API_REACHABLE)
    if reachable is None:
        return None
    if reachable.status is ConditionStatus.TRUE:
        text = "API keys are checked at the API."
        return ConditionUpdate("KeysChecked", status=True, reason=reachable.reason, message=text)
    text = (
        "API keys cannot be checked: requests with one get 503, except for keys that were valid "
        f"a moment ago. {reachable.message}"
    )
    return ConditionUpdate("KeysChecked", status=False, reason=reachable.reason, message=text)
