"""Encrypted bodies: the sidecar `guest ehbp`, its document, and the shim's routes to it.

The shim judges a request by every rule of the file, then passes it to the sidecar over a Unix
socket; the sidecar decrypts its body and passes it on to the container. Only enclaves whose file
has ``ehbp`` have it. Sources: docs/configuration-file.md, "Encrypted bodies"; docs/enclave.md,
"Encrypted bodies".
"""

from typing import Any

from cloister_crds.config import EncryptedBodies, Shim
from cloister_operator.enclave import paths
from cloister_operator.enclave.network.addresses import TARGET_ADDRESS
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan
from cloister_operator.enclave.sidecars import (
    EHBP,
    LOOPBACK,
    isolates_containers,
    sidecar,
    sidecar_name,
    unprivileged,
)

AWAITING_BODIES = {"vars": {"ehbp": ["asked"]}}
"""Matcher of requests that were passed to the sidecar: an error of one is the sidecar's."""
NONCE_HEADER = "Ehbp-Response-Nonce"
"""Header of an encrypted response, which clients in browsers must read."""

_KEY_HEADER = "Ehbp-Encapsulated-Key"
_VERSION = 1
_KEYS = {"vars_regexp": {"{http.request.uri}": {"pattern": r"^/\.well-known/hpke-keys(\?|$)"}}}


def key_routes(shim: Shim, socket: str = paths.BODIES_SOCKET) -> list[dict[str, Any]]:
    """Return the route to the key configuration, before the paths of the file; none without."""
    if shim.ehbp is None:
        return []
    return [{"match": [_KEYS], "handle": _handlers(socket, {}), "terminal": True}]


def bodies_routes(
    shim: Shim, cleaned: dict[str, Any], headers: dict[str, Any], socket: str = paths.BODIES_SOCKET
) -> list[dict[str, Any]]:
    """Build the route to the sidecar, after every rule and before the upstream.

    Parameters
    ----------
    shim
        The section of the parsed file.
    cleaned
        The handler that removes headers which clients must not set.
    headers
        What is changed of the headers of a request and its response, as for the upstream.

    Returns
    -------
    list[dict[str, Any]]
        One route for encrypted requests, and where the file requires encryption for all; none
        without ``ehbp``.
    """
    if shim.ehbp is None:
        return []
    handlers = [cleaned, *_handlers(socket, headers)]
    route: dict[str, Any] = {"handle": handlers, "terminal": True}
    if shim.ehbp is EncryptedBodies.OPTIONAL:
        route["match"] = [{"header": {_KEY_HEADER: ["*"]}}]
    return [route]


def _handlers(socket: str, headers: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what passes a request to the sidecar, unbuffered both ways."""
    proxy = {
        "handler": "reverse_proxy",
        "upstreams": [{"dial": f"unix/{socket}"}],
        "flush_interval": -1,
        "headers": headers,
    }
    return [{"handler": "vars", "ehbp": "asked"}, proxy]


def bodies_document(plan: EnclavePlan) -> dict[str, Any]:
    """Build the document of `guest ehbp`.

    Returns
    -------
    dict[str, Any]
        The document; ``operator/guest/internal/frontdoor/ehbp`` documents it.
    """
    shim = plan.config.shim
    address = str(TARGET_ADDRESS) if isolates_containers(plan.host) else LOOPBACK
    return {
        "version": _VERSION,
        "directory": paths.BODIES,
        "keyDirectory": paths.BODIES_PRIVATE_KEY,
        "upstream": f"{address}:{shim.upstream_port}",
        "required": shim.ehbp is EncryptedBodies.REQUIRED,
    }


def bodies_container(
    plan: EnclavePlan, settings: BuildSettings, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Build the sidecar."""
    document = f"{paths.BODIES_CONFIG}/{paths.BODIES_KEY}"
    return {
        **sidecar(settings, mounts),
        "name": sidecar_name(EHBP, plan.names),
        "command": ["/guest", "ehbp", "-spec", document],
        "securityContext": unprivileged(EHBP),
    }
