"""The sidecars that talk to the API.

The certificate of the enclave's TLS key, and the check of API keys.
"""

from typing import Any

from cloister_crds.config import TlsMode
from cloister_crds.kinds.host import TEE, HostSpec
from cloister_operator.enclave import paths
from cloister_operator.enclave.plan import ApiIdentity, BuildSettings, EnclavePlan
from cloister_operator.enclave.sidecars import (
    CERTIFICATE,
    GATE,
    SHIM,
    certificate_folder,
    sidecar,
    sidecar_name,
    unprivileged,
)

TOKEN_SECONDS = 600
"""Validity of a token, the least that Kubernetes permits; the kubelet renews it earlier."""
DEFAULT_SERVICE = "http://127.0.0.1:8006"
"""REST server of the guest components, in a confidential virtual machine per Pod."""
_VERSION = 2
_DOCUMENT = f"{paths.CERTIFICATE_CONFIG}/{paths.CERTIFICATE_KEY}"


def is_signed(plan: EnclavePlan) -> bool:
    """Return whether an enclave's certificates are signed through the API.

    Parameters
    ----------
    plan
        The Enclave and its file; ``tls-mode: self-signed`` declines.
    """
    declined = plan.config.shim.tls_mode is TlsMode.SELF_SIGNED
    return plan.enclave.spec.signed_certificate and not declined


def api_address(api: ApiIdentity, directory: str = paths.CERTIFICATE_CONFIG) -> dict[str, Any]:
    """Build the API's address as sidecars read it.

    Parameters
    ----------
    directory
        Where the sidecar finds the authorities that the API's certificate must chain to.
    """
    address: dict[str, Any] = {"url": api.url}
    if api.authorities:
        address["caFile"] = f"{directory}/{paths.AUTHORITIES_KEY}"
    return address


def certificate_document(api: ApiIdentity, host: HostSpec) -> dict[str, Any]:
    """Build the sidecar's document.

    Parameters
    ----------
    host
        The Host; the sidecar also keeps what the vendors of its processors with a TEE publish.

    Returns
    -------
    dict[str, Any]
        The document of ``guest certificate``.
    """
    collateral = {}
    if host.tee is not TEE.NONE:
        service = host.attestation_service or DEFAULT_SERVICE
        collateral = {"collateral": {"tee": str(host.tee), "service": service}}
    return {
        "version": _VERSION,
        **collateral,
        "api": api_address(api),
        "tokenFile": f"{paths.TOKEN}/{paths.TOKEN_FILE}",
        "directory": paths.CERTIFICATE,
        "shimStore": certificate_folder(paths.SHIM_STORE),
        "terminationFile": paths.TERMINATION_LOG,
    }


def certificate_container(
    plan: EnclavePlan, settings: BuildSettings, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Build the sidecar.

    Returns
    -------
    dict[str, Any]
        An entry of ``spec.containers``. Its group is the shim's, which so can read what it
        writes. Only the enclave's progress deadline limits how long it may take.
    """
    return {
        **sidecar(settings, mounts),
        "name": sidecar_name(CERTIFICATE, plan.names),
        "command": ["/guest", "certificate", "-spec", _DOCUMENT],
        "securityContext": {**unprivileged(CERTIFICATE), "runAsGroup": SHIM.user},
    }


def gate_document(plan: EnclavePlan, settings: BuildSettings) -> dict[str, Any]:
    """Build the document of `guest gate`.

    Parameters
    ----------
    settings
        The API, and how long valid keys are cached.

    Returns
    -------
    dict[str, Any]
        The document; ``operator/guest/internal/frontdoor/forwardauth`` documents it.
    """
    shim = plan.config.shim
    document: dict[str, Any] = {"version": _VERSION, "socket": paths.GATE_SOCKET}
    if shim.keyed_endpoints and settings.api is not None:
        document["keys"] = {
            "api": api_address(settings.api, paths.GATE_CONFIG),
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
    document = f"{paths.GATE_CONFIG}/{paths.GATE_KEY}"
    return {
        **sidecar(settings, mounts),
        "name": sidecar_name(GATE, plan.names),
        "command": ["/guest", "gate", "-spec", document],
        "securityContext": unprivileged(GATE),
    }
