"""The document of the shim, which is the ``shim`` section of the file and where things are."""

from typing import Any

from cloister_crds.config import EncryptedBodies, Shim
from cloister_operator.enclave import paths
from cloister_operator.enclave.guest_config.certificate import is_signed
from cloister_operator.enclave.guest_config.ssh import PUBLIC_KEY_FILE
from cloister_operator.enclave.network.addresses import SHIM_PORT, TARGET_ADDRESS
from cloister_operator.enclave.plan import EnclavePlan
from cloister_operator.enclave.sidecars import LOOPBACK, isolates_containers, needs_key_gate

_VERSION = 3
_HEADERS_MILLIS = 30_000
"""How long a client may take for its headers."""


def shim_document(plan: EnclavePlan, service: str) -> dict[str, Any]:
    """Build the document of ``cloister-shim``.

    Returns
    -------
    dict[str, Any]
        The document; ``operator/guest/internal/frontdoor/shim`` documents it. Host names are not
        in it: they are not measured.
    """
    shim = plan.config.shim
    address = str(TARGET_ADDRESS) if isolates_containers(plan.host) else LOOPBACK
    return {
        "version": _VERSION,
        "listen": [f":{SHIM_PORT}"],
        "headerTimeoutMillis": _HEADERS_MILLIS,
        "data": paths.SHIM_DATA,
        **({"store": paths.SHIM_STORE} if is_signed(plan) else {}),
        "service": service,
        "agent": paths.AGENT,
        "upstream": f"{address}:{shim.upstream_port}",
        "paths": list(shim.paths),
        **({} if shim.origins is None else {"origins": list(shim.origins)}),
        **_gate(shim),
        **_bodies(shim),
        **({"hostKey": PUBLIC_KEY_FILE} if plan.has_ssh else {}),
    }


def _gate(shim: Shim) -> dict[str, Any]:
    """Return when the gate is asked; nothing without one."""
    if not needs_key_gate(shim):
        return {}
    rules = {"keyed": list(shim.keyed_endpoints), "rate": shim.rate_limit is not None}
    return {"gate": {"socket": paths.GATE_SOCKET, **rules}}


def _bodies(shim: Shim) -> dict[str, Any]:
    """Return when a request goes to what decrypts its body; nothing without it."""
    if shim.ehbp is None:
        return {}
    required = shim.ehbp is EncryptedBodies.REQUIRED
    return {"bodies": {"socket": paths.BODIES_SOCKET, "required": required}}
