"""API keys at an enclave's shim, as far as an administrator has to make them possible.

The operator knows where enclaves ask the API and writes it into the condition ``ApiReachable`` of
each Host; who decides about a file reads it there. Source: the manual, docs/configuration-file.md,
"The shim"; docs/enclave.md, "When the API is away".
"""

from collections.abc import Iterator

from cloister_crds.config.model import ServiceConfig
from cloister_crds.kinds.host import Host
from cloister_crds.kinds.meta import ConditionStatus
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, condition
from cloister_crds.problems import Problem

__all__ = ["API_REACHABLE", "api_reachable_condition", "keys_checked_condition", "keys_without_api"]

API_REACHABLE = "ApiReachable"
"""Condition of a Host: whether its enclaves have a way to the API."""
_MISSING = "ApiAddressMissing"


def api_reachable_condition(address: str | None, trouble: str) -> ConditionUpdate:
    """Report whether enclaves have a way to the API.

    Parameters
    ----------
    address
        The setting ``apiAddress``; None = it is not set.
    trouble
        Why it is not reached at present, as a sentence; empty = it is.

    Returns
    -------
    ConditionUpdate
        The condition of a Host.
    """
    if address is None:
        text = (
            "The operator has no apiAddress: files that want API keys are refused, and no "
            "certificates are signed. Set apiAddress in the operator's settings."
        )
        return ConditionUpdate(API_REACHABLE, status=False, reason=_MISSING, message=text)
    if trouble:
        return ConditionUpdate(
            API_REACHABLE, status=False, reason="ApiUnreachable", message=trouble
        )
    text = f"The API answers at {address}."
    return ConditionUpdate(API_REACHABLE, status=True, reason="ApiAnswers", message=text)


def keys_without_api(config: ServiceConfig, host: Host | None, *, known: bool) -> Iterator[Problem]:
    """Report that a file wants keys where enclaves do not know who checks them.

    Parameters
    ----------
    config
        The parsed file.
    host
        The Host that it would run on; None = not known.
    known
        False when whoever asks has the operator's settings and ``apiAddress`` is not among them;
        else the Host's condition tells it.
    """
    told = condition(host.status.conditions, API_REACHABLE) if host is not None else None
    missing = not known or (told is not None and told.reason == _MISSING)
    if config.shim.keyed_endpoints and missing:
        yield Problem(
            "shim.authenticated",
            _MISSING,
            "shim.authenticated: enclaves do not know where API keys are checked; ask the "
            "administrator to set apiAddress in the operator's settings, or leave it out.",
        )


def keys_checked_condition(host: Host) -> ConditionUpdate | None:
    """Report whether the keys of an enclave that asks for them can be checked now.

    Returns
    -------
    ConditionUpdate | None
        The condition ``KeysChecked`` of a Container; None = the Host does not tell yet.
    """
    told = condition(host.status.conditions, API_REACHABLE)
    if told is None:
        return None
    if told.status is ConditionStatus.TRUE:
        text = "API keys are checked at the API."
        return ConditionUpdate("KeysChecked", status=True, reason=told.reason, message=text)
    text = (
        "API keys cannot be checked: requests with one get 503, but for keys that were good a "
        f"moment ago. {told.message}"
    )
    return ConditionUpdate("KeysChecked", status=False, reason=told.reason, message=text)
