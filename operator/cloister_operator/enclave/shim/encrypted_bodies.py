"""Encrypted bodies: the sidecar `guest ehbp` and its document.

The shim judges a request by every rule of the file, then passes it to the sidecar over a Unix
socket; the sidecar decrypts its body and passes it on to the container. Only enclaves whose file
has ``ehbp`` have it. Sources: docs/configuration-file.md, "Encrypted bodies"; docs/enclave.md,
"Encrypted bodies".
"""

from typing import Any

from cloister_crds.config import EncryptedBodies
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

_VERSION = 1


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
