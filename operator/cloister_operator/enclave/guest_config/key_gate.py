"""The key gate: whether a request's API key and rate allow it.

`guest gate` runs beside the shim where a file requires keys or rates, and only there; the shim
queries it over a Unix socket before it forwards (Caddy's "forward auth"). Sources:
docs/configuration-file.md, "The shim"; docs/enclave.md, "The gate".
"""

from typing import Any

from cloister_crds.config import Shim
from cloister_operator.enclave.guest_config.certificate import api_address
from cloister_operator.enclave.path_rules import AMBIGUOUS, reaching_pattern
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan
from cloister_operator.enclave.sidecars import (
    GATE,
    sidecar,
    sidecar_name,
    unprivileged,
)

__all__ = [
    "AWAITING_GATE",
    "GATE_CONFIG_DIRECTORY",
    "GATE_DIRECTORY",
    "GATE_KEY",
    "GATE_SOCKET",
    "gate_container",
    "gate_document",
    "gate_routes",
]

GATE_DIRECTORY = "/run/cloister/gate"
"""Directory of the gate's socket; mounted in the gate and the shim only."""
GATE_SOCKET = f"{GATE_DIRECTORY}/gate.sock"
"""Where `guest gate` serves the shim."""
GATE_CONFIG_DIRECTORY = "/etc/cloister-gate"
"""Where the gate finds its document."""
GATE_KEY = "gate.json"
"""Key of the gate's document in the ConfigMap."""
AWAITING_GATE = {"vars": {"gate": ["asked"]}}
"""Matcher of requests that wait for the gate: an error of one is the gate's."""

_VERSION = 2
_TARGET = "{http.request.uri}"
_DIAL = "2s"
_RESPONSE = "15s"
"""Longer than the gate ever takes to respond."""


def gate_routes(shim: Shim, socket: str = GATE_SOCKET) -> list[dict[str, Any]]:
    """Build the shim's routes that query the gate.

    Parameters
    ----------
    shim
        The section of the parsed file.
    socket
        Where the gate listens.

    Returns
    -------
    list[dict[str, Any]]
        For Caddy, between the paths and the upstream: at most one of them applies. While the gate
        is down, the paths that need it are refused and the others stay open.
    """
    rules = shim.keyed_endpoints
    routes = []
    if rules:
        patterns = [*(reaching_pattern(rule) for rule in rules), AMBIGUOUS]
        keyed = [{"vars_regexp": {_TARGET: {"pattern": each}}} for each in patterns]
        routes.append({"match": keyed, **_gate_route("/key", socket)})
    if shim.rate_limit is not None:
        routes.append(_gate_route("/rate", socket))
    return routes


def _gate_route(path: str, socket: str) -> dict[str, Any]:
    """Build a route that queries one path of the gate and continues when the response is 200.

    The client gets any other response unchanged. The query has no body and none of the client's
    headers but the key, so that WebSockets, streams and bodies stay between the client and the
    container.
    """
    headers = {
        "Authorization": ["{http.request.header.Authorization}"],
        "X-Gate-Address": ["{http.request.remote.host}"],
        "X-Gate-Host": ["{http.request.host}"],
        "X-Gate-Target": [_TARGET],
    }
    query = {
        "handler": "reverse_proxy",
        "upstreams": [{"dial": f"unix/{socket}"}],
        "transport": {
            "protocol": "http",
            "dial_timeout": _DIAL,
            "response_header_timeout": _RESPONSE,
        },
        "rewrite": {"method": "GET", "uri": path},
        "headers": {"request": {"delete": ["*"], "set": headers}},
        "handle_response": [
            {"match": {"status_code": [200]}, "routes": [{"handle": [_state("passed")]}]}
        ],
    }
    return {"group": "gate", "handle": [_state("asked"), query]}


def _state(state: str) -> dict[str, Any]:
    """Record how far a request has come, for `AWAITING_GATE`."""
    return {"handler": "vars", "gate": state}


def gate_document(plan: EnclavePlan, settings: BuildSettings) -> dict[str, Any]:
    """Build the document of `guest gate`.

    Parameters
    ----------
    plan
        The Enclave and its file.
    settings
        The API, and how long valid keys are cached.

    Returns
    -------
    dict[str, Any]
        The document; ``operator/guest/internal/forwardauth`` documents it.
    """
    shim = plan.config.shim
    document: dict[str, Any] = {"version": _VERSION, "socket": GATE_SOCKET}
    if shim.keyed_endpoints and settings.api is not None:
        document["keys"] = {
            "api": api_address(settings.api, GATE_CONFIG_DIRECTORY),
            "cacheSeconds": settings.key_cache_seconds,
            "outageSeconds": settings.key_outage_seconds,
        }
    if shim.rate_limit is not None:
        document["rate"] = {"perSecond": shim.rate_limit, "burst": shim.rate_burst or 1}
    return document


def gate_container(
    plan: EnclavePlan, settings: BuildSettings, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Build the sidecar."""
    document = f"{GATE_CONFIG_DIRECTORY}/{GATE_KEY}"
    return {
        **sidecar(settings, mounts),
        "name": sidecar_name(GATE, plan.names),
        "command": ["/guest", "gate", "-spec", document],
        "securityContext": unprivileged(GATE),
    }
