"""The document of the shim: Caddy's configuration, without what is not measured.

The document's fields are those of the guest's package `shim`, which writes the host names into it.
"""

from typing import Any

from cloister_operator.enclave.guest_config.certificate import SHIM_STORAGE, is_signed
from cloister_operator.enclave.guest_config.ssh import host_key_route
from cloister_operator.enclave.network.addresses import TARGET_ADDRESS
from cloister_operator.enclave.plan import EnclavePlan
from cloister_operator.enclave.shim.caddy import shim_config
from cloister_operator.enclave.sidecars import LOOPBACK, isolates_containers

__all__ = ["SHIM_KEY", "shim_document"]

SHIM_KEY = "shim.json"
"""Key of the document in the ConfigMap."""
_VERSION = 2


def shim_document(plan: EnclavePlan, service: str) -> dict[str, Any]:
    """Build the document.

    Parameters
    ----------
    plan
        The Enclave and its file.
    service
        Name of the service in the well-known paths.

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
            storage=SHIM_STORAGE if signed else None,
        ),
    }
