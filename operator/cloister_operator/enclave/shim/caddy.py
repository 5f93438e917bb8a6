"""The shim's configuration: JSON for Caddy, built from the ``shim`` section of the file."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from cloister_crds.config import Shim
from cloister_operator.enclave import paths
from cloister_operator.enclave.guest_config.certificate import AWAITING_GATE, gate_routes, is_signed
from cloister_operator.enclave.guest_config.ssh import host_key_route
from cloister_operator.enclave.network.addresses import SHIM_PORT, TARGET_ADDRESS
from cloister_operator.enclave.path_rules import ALL_PATHS, DOT_SEGMENTS, path_pattern
from cloister_operator.enclave.plan import EnclavePlan
from cloister_operator.enclave.shim.encrypted_bodies import (
    AWAITING_BODIES,
    NONCE_HEADER,
    bodies_routes,
    key_routes,
)
from cloister_operator.enclave.sidecars import LOOPBACK, isolates_containers, tls_app

_SOCKET = "agent.sock"
_BOOTED = "booted"
_SUFFIXES = ("attestation", "boot-stages", "certificate", "containers", "metrics")


def well_known_matcher(service: str) -> dict[str, Any]:
    """Return the matcher of the paths that the agent serves."""
    suffixes = "|".join(_SUFFIXES)
    pattern = rf"^/\.well-known/(metrics|{re.escape(service)}-({suffixes}))(\?|$)"
    return {"vars_regexp": {"{http.request.uri}": {"pattern": pattern}}}


def booting_matcher(directory: str) -> dict[str, Any]:
    """Return the matcher of every request before the boot is complete."""
    return {"not": [{"file": {"root": directory, "try_files": [_BOOTED]}}]}


def well_known_routes(service: str, directory: str) -> list[dict[str, Any]]:
    """Return the routes to the agent; what matches goes nowhere else."""
    to_agent = [_proxy(directory)]
    return [
        {"match": [well_known_matcher(service)], "handle": to_agent, "terminal": True},
        {"match": [booting_matcher(directory)], "handle": to_agent, "terminal": True},
    ]


def _proxy(directory: str) -> dict[str, Any]:
    """Return the handler that passes a request to the agent."""
    return {"handler": "reverse_proxy", "upstreams": [{"dial": f"unix/{directory}/{_SOCKET}"}]}


_TARGET = "{http.request.uri}"
_ORIGIN = "{http.request.header.Origin}"
_METHODS = "GET, PUT, POST, HEAD, DELETE, OPTIONS, PATCH"
_ANY_ORIGIN = "*"
_NO_HEADERS_YET = "30s"
_AGENT_DOWN = "The enclave's agent is starting; ask again in a moment."
_UPSTREAM_DOWN = (502, 503, 504)
_ENCODER = {
    "format": "filter",
    "wrap": {"format": "json"},
    "fields": {"request": {"filter": "delete"}},
}
"""Nothing that a client sent is in the shim's log, which the host of the enclave can read."""
_CLEANED = {
    "handler": "headers",
    "request": {
        "delete": [
            "*forwarded*",
            "X-Original-*",
            "X_Original_*",
            "X-Rewrite-*",
            "X_Rewrite_*",
            "*Real-IP*",
            "*Real_IP*",
        ]
    },
}
"""Headers that servers trust from a proxy and that a client must not set: the client's address, the
host and the path. Some servers read an underscore as a hyphen."""


def shim_config(
    shim: Shim,
    hostnames: Sequence[str],
    *,
    port: int = SHIM_PORT,
    upstream: str = "127.0.0.1",
    before: Sequence[dict[str, Any]] = (),
    service: str = "cloister",
    agent: str = paths.AGENT,
    storage: str | None = None,
    gate: str = paths.GATE_SOCKET,
    bodies: str = paths.BODIES_SOCKET,
) -> dict[str, Any]:
    """Build the configuration.

    Parameters
    ----------
    shim
        The section of the parsed file.
    hostnames
        Host names of the enclave, the public one first: certificates are for these, and a client
        without SNI gets the first one's.
    upstream
        Address of the upstream container: its own on `shim-net`, or the loopback address where all
        containers share the Pod's namespace.
    before
        Our own routes before the paths of the file.
    storage
        Caddy's certificate storage (`cloister_operator.enclave.sidecars`); None means Caddy has an
        authority of its own.
    gate
        Socket of `guest gate`, for a file that requires keys or rates.
    bodies
        Socket of `guest ehbp`, for a file with encrypted bodies.

    Returns
    -------
    dict[str, Any]
        The whole configuration: no administration endpoint, nothing stored but keys.
    """
    server = {
        "listen": [f":{port}"],
        "protocols": ["h1", "h2"],
        "read_header_timeout": _NO_HEADERS_YET,
        "automatic_https": {"disable": True},
        "tls_connection_policies": [{"default_sni": hostnames[0]} if hostnames else {}],
        "routes": [
            *_cors_routes(shim),
            *well_known_routes(service, agent),
            *key_routes(shim, bodies),
            *before,
            *_path_routes(shim.paths),
            *gate_routes(shim, gate),
            *bodies_routes(shim, _CLEANED, _proxy_headers(), bodies),
            {"handle": [_CLEANED, _upstream(f"{upstream}:{shim.upstream_port}", shim)]},
        ],
        "errors": {"routes": _error_routes(shim, service, agent)},
    }
    return {
        "admin": {"disabled": True, "config": {"persist": False}},
        "logging": {"logs": {"default": {"encoder": _ENCODER}}},
        "apps": {
            "http": {"servers": {"shim": server}},
            "pki": {"certificate_authorities": {"local": {"install_trust": False}}},
            "tls": tls_app(hostnames, storage),
        },
    }


def _cors_routes(shim: Shim) -> list[dict[str, Any]]:
    """Return the routes for requests with an Origin header, and only for those."""
    origins = shim.origins
    # Scripts in browsers read no header of a response that is not exposed.
    exposed = {"Access-Control-Expose-Headers": [NONCE_HEADER]} if shim.ehbp is not None else {}
    with_origin: dict[str, Any] = {"header": {"Origin": ["*"]}}
    routes: list[dict[str, Any]] = []
    if origins is not None and _ANY_ORIGIN not in origins:
        allowed = [{"vars": {_ORIGIN: list(origins)}}] if origins else []
        refused = {**with_origin, "not": allowed} if allowed else with_origin
        body = _error("CORS origin not allowed.", "invalid_request_error")
        # Refused before any other route, so that the upstream never sees such a request.
        routes.append(_final([refused], 403, body))
    wanted = {"header": {"Access-Control-Request-Headers": ["*"]}}
    routes.append(
        {
            "match": [with_origin],
            "handle": [
                {
                    "handler": "headers",
                    "response": {
                        "add": {"Vary": ["Origin"]},
                        "set": {
                            "Access-Control-Allow-Origin": [_ORIGIN],
                            "Access-Control-Allow-Credentials": ["true"],
                            "Access-Control-Allow-Methods": [_METHODS],
                            **exposed,
                        },
                    },
                }
            ],
        }
    )
    echoed = "{http.request.header.Access-Control-Request-Headers}"
    routes.append(
        {
            "match": [{"header": {**with_origin["header"], **wanted["header"]}}],
            "handle": [
                {
                    "handler": "headers",
                    "response": {"set": {"Access-Control-Allow-Headers": [echoed]}},
                }
            ],
        }
    )
    routes.append(_final([{**with_origin, "method": ["OPTIONS"]}], 204, None))
    return routes


def _path_routes(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Return the refusal of every path that is not listed, and of targets that are not paths."""
    refused = [{"not": [_target("^/")]}]
    if ALL_PATHS not in paths:
        listed = [_target(path_pattern(path)) for path in paths]
        refused = [_target(DOT_SEGMENTS), {"not": listed}]
    return [_final(refused, 404, _error("Not found.", "invalid_request_error"))]


def _target(pattern: str) -> dict[str, Any]:
    """Match path and query as they were sent."""
    return {"vars_regexp": {_TARGET: {"pattern": pattern}}}


def _upstream(address: str, shim: Shim) -> dict[str, Any]:
    """Return the proxy handler: unbuffered both ways, with the original host in headers."""
    return {
        "handler": "reverse_proxy",
        "upstreams": [{"dial": address}],
        "flush_interval": -1,
        # A container cannot pass a response off as encrypted that is not.
        "headers": _proxy_headers(*([] if shim.ehbp is None else [NONCE_HEADER])),
    }


def _proxy_headers(*deleted: str) -> dict[str, Any]:
    """Return what is changed of the headers of a request to the upstream, and of its response."""
    return {
        "request": {
            "set": {
                "Forwarded": ['host="{http.request.hostport}";proto={http.request.scheme}'],
                "X-Forwarded-Host": ["{http.request.hostport}"],
                "X-Forwarded-Proto": ["{http.request.scheme}"],
            }
        },
        "response": {"delete": ["Access-Control-*", *deleted]},
    }


def _error_routes(shim: Shim, service: str, agent: str) -> list[dict[str, Any]]:
    """Return the responses when agent, key gate or upstream are down, and for other errors."""
    away = _error(_AGENT_DOWN, "server_error")
    early = _error(_AGENT_DOWN, "server_error", {"status": "pending"}, boot={"stages": []})
    closed = _error("The request cannot be checked at the moment: try again.", "server_error")
    lost = _error("The encrypted request was not passed on as a whole.", "server_error")
    down = _error("The container does not answer.", "server_error")
    broken = _error("The request could not be handled.", "server_error")
    statuses = " || ".join(f"{{http.error.status_code}} == {each}" for each in _UPSTREAM_DOWN)
    return [
        _final([well_known_matcher(service)], 503, away),
        _final([booting_matcher(agent)], 503, early),
        *([] if shim.ehbp is None else [_final([AWAITING_BODIES], 502, lost)]),
        _final([AWAITING_GATE], 503, closed, {"Retry-After": ["1"]}),
        _final([{"expression": statuses}], 502, down),
        _final([], "{http.error.status_code}", broken),
    ]


def _final(
    match: list[dict[str, Any]],
    status: int | str,
    body: str | None,
    headers: dict[str, list[str]] | None = None,
) -> dict[str, Any]:
    """Return a route that ends the request."""
    response: dict[str, Any] = {"handler": "static_response", "status_code": str(status)}
    if body is not None:
        headers = {"Content-Type": ["application/json"], **(headers or {})}
        response |= {"body": body, "headers": headers}
    route: dict[str, Any] = {"handle": [response], "terminal": True}
    return {"match": match, **route} if match else route


def _error(message: str, kind: str, more: Mapping[str, str] | None = None, **further: Any) -> str:
    """Write an error of the API as JSON, its braces escaped from Caddy's placeholders."""
    text = json.dumps({"error": {"message": message, "type": kind, **(more or {})}, **further})
    return text.replace("{", "\\{").replace("}", "\\}")


_VERSION = 2


def shim_document(plan: EnclavePlan, service: str) -> dict[str, Any]:
    """Build the document.

    Returns
    -------
    dict[str, Any]
        The document of ``guest shim``.
    """
    signed = is_signed(plan)
    return {
        "version": _VERSION,
        "signed": signed,
        "caddy": shim_config(
            plan.config.shim,
            (),
            upstream=str(TARGET_ADDRESS) if isolates_containers(plan.host) else LOOPBACK,
            before=[host_key_route(service)] if plan.has_ssh else (),
            service=service,
            storage=paths.SHIM_STORE if signed else None,
        ),
    }
