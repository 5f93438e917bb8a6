"""The gate: whether a request has a key and a rate that let it pass.

`guest gate` runs beside the shim where a file asks for keys or rates, and only there; the shim
asks it over a Unix socket before it forwards (Caddy's "forward auth"). Source: the manual,
docs/configuration-file.md, "The shim"; docs/enclave.md, "The gate".
"""

from typing import Any

from cloister_crds.config import Shim
from cloister_operator.enclave.guest_config.certificate import api_address
from cloister_operator.enclave.network.cluster_network import ApiEndpoint
from cloister_operator.enclave.path_rules import AMBIGUOUS, reaching_pattern
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan
from cloister_operator.enclave.sidecars import (
    GATE,
    name_of,
    side_car,
    unprivileged,
)

__all__ = [
    "ASKED",
    "GATE_CONFIG_DIRECTORY",
    "GATE_DIRECTORY",
    "GATE_KEY",
    "GATE_SOCKET",
    "gate_container",
    "gate_document",
    "gate_routes",
]

GATE_DIRECTORY = "/run/cloister/gate"
"""Directory of the gate's socket; mounted in the gate and the shim alone."""
GATE_SOCKET = f"{GATE_DIRECTORY}/gate.sock"
"""Where `guest gate` answers the shim."""
GATE_CONFIG_DIRECTORY = "/etc/cloister-gate"
"""Where the gate finds its document."""
GATE_KEY = "gate.json"
"""Key of the gate's document in the ConfigMap."""
ASKED = {"vars": {"gate": ["asked"]}}
"""Matcher of requests that wait for the gate's word: one that fails is the gate's failure."""

_VERSION = 1
_TARGET = "{http.request.uri}"
_DIAL = "2s"
_ANSWER = "15s"
"""Above the time within which the gate answers in any case."""
_STARTED = {"periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 120}


def gate_routes(shim: Shim, socket: str = GATE_SOCKET) -> list[dict[str, Any]]:
    """Build the shim's routes that ask the gate.

    Parameters
    ----------
    shim
        The section of the parsed file.
    socket
        Where the gate answers.

    Returns
    -------
    list[dict[str, Any]]
        For Caddy, to stand between the paths and the upstream: one of them acts at most. A gate
        that is away closes the paths that would ask it and leaves the others open.
    """
    rules = shim.keyed_endpoints
    routes = []
    if rules:
        patterns = [*(reaching_pattern(rule) for rule in rules), AMBIGUOUS]
        keyed = [{"vars_regexp": {_TARGET: {"pattern": each}}} for each in patterns]
        routes.append({"match": keyed, **_asking("/key", socket)})
    if shim.rate_limit is not None:
        routes.append(_asking("/rate", socket))
    return routes


def _asking(question: str, socket: str) -> dict[str, Any]:
    """Build a route that asks one question and goes on when the answer is 200.

    Any other answer goes to the client as it is. The question carries no body and none of the
    client's headers but the key, so that WebSockets, streams and bodies stay between the client
    and the container.
    """
    told = {
        "Authorization": ["{http.request.header.Authorization}"],
        "X-Gate-Address": ["{http.request.remote.host}"],
        "X-Gate-Host": ["{http.request.host}"],
        "X-Gate-Target": [_TARGET],
    }
    asking = {
        "handler": "reverse_proxy",
        "upstreams": [{"dial": f"unix/{socket}"}],
        "transport": {
            "protocol": "http",
            "dial_timeout": _DIAL,
            "response_header_timeout": _ANSWER,
        },
        "rewrite": {"method": "GET", "uri": question},
        "headers": {"request": {"delete": ["*"], "set": told}},
        "handle_response": [
            {"match": {"status_code": [200]}, "routes": [{"handle": [_state("passed")]}]}
        ],
    }
    return {"group": "gate", "handle": [_state("asked"), asking]}


def _state(state: str) -> dict[str, Any]:
    """Note how far a request has come, for `ASKED`."""
    return {"handler": "vars", "gate": state}


def gate_document(
    plan: EnclavePlan, settings: BuildSettings, api: ApiEndpoint | None
) -> dict[str, Any]:
    """Write the document of `guest gate`.

    Parameters
    ----------
    plan
        The Enclave and its file.
    settings
        How long good keys are remembered.
    api
        Where the API is; None only where no path needs a key.

    Returns
    -------
    dict[str, Any]
        The document; ``operator/guest/internal/forwardauth`` documents it.
    """
    shim = plan.config.shim
    document: dict[str, Any] = {"version": _VERSION, "socket": GATE_SOCKET}
    if shim.keyed_endpoints and api is not None:
        document["keys"] = {
            "api": api_address(api, GATE_CONFIG_DIRECTORY),
            "domain": plan.enclave.spec.hostnames[0],
            "cacheSeconds": settings.key_cache_seconds,
            "outageSeconds": settings.key_outage_seconds,
        }
    if shim.rate_limit is not None:
        document["rate"] = {"perSecond": shim.rate_limit, "burst": shim.rate_burst or 1}
    return document


def gate_container(
    plan: EnclavePlan, settings: BuildSettings, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Build the side-car."""
    document = f"{GATE_CONFIG_DIRECTORY}/{GATE_KEY}"
    return {
        **side_car(settings, mounts),
        "name": name_of(GATE, plan.names),
        "command": ["/guest", "gate", "-spec", document],
        "securityContext": unprivileged(GATE),
        "startupProbe": {
            "exec": {"command": ["/guest", "gate", "-check", GATE_SOCKET]},
            **_STARTED,
        },
    }
