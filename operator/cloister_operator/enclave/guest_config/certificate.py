"""The sidecar that creates the enclave's TLS key and renews the certificate for it.

Enclaves whose certificate is signed have it, before the containers of the file: without a
certificate nothing starts. The document's fields are those of the guest's package `certificate`.
"""

from typing import Any

from cloister_crds.config import TlsMode
from cloister_crds.kinds.host import TEE, HostSpec
from cloister_operator.enclave.container.probes import stage_probe
from cloister_operator.enclave.plan import ApiIdentity, BuildSettings, EnclavePlan
from cloister_operator.enclave.shim_tls import certificate_folder
from cloister_operator.enclave.sidecars import (
    CERTIFICATE,
    SHIM,
    sidecar,
    sidecar_name,
    unprivileged,
)

__all__ = [
    "AUTHORITIES_KEY",
    "CERTIFICATE_DIRECTORY",
    "CERTIFICATE_DOCUMENT_DIRECTORY",
    "CERTIFICATE_KEY",
    "CHAIN_FILE",
    "DEFAULT_SERVICE",
    "FINGERPRINT_FILE",
    "SHIM_STORAGE",
    "TOKEN_DIRECTORY",
    "TOKEN_FILE",
    "TOKEN_SECONDS",
    "api_address",
    "certificate_container",
    "certificate_document",
    "is_signed",
]

CERTIFICATE_KEY = "certificate.json"
"""Key of the document in the ConfigMap."""
AUTHORITIES_KEY = "api-authorities.pem"
"""Key of the authorities that the API's certificate must chain to, in the ConfigMap."""
CERTIFICATE_DOCUMENT_DIRECTORY = "/etc/cloister-certificate"
"""Where the sidecar finds both."""
TOKEN_DIRECTORY = "/run/cloister/token"  # noqa: S105 - a path
"""Where the kubelet keeps the enclave's token."""
TOKEN_FILE = "token"  # noqa: S105 - a name
"""Name of the file with the token."""
TOKEN_SECONDS = 600
"""Validity of a token, the least that Kubernetes permits; the kubelet renews it earlier."""
CERTIFICATE_DIRECTORY = "/run/cloister/certificate"
"""Memory with ``tls.key``, ``tls.crt`` and the fingerprint of the key, ``tls.spki``."""
FINGERPRINT_FILE = f"{CERTIFICATE_DIRECTORY}/tls.spki"
"""Exists as soon as the key does; as the guest's package `certificate` names it."""
CHAIN_FILE = f"{CERTIFICATE_DIRECTORY}/tls.crt"
"""Exists as soon as the key has a certificate."""
SHIM_STORAGE = f"{CERTIFICATE_DIRECTORY}/shim"
"""Where the shim finds the certificates."""
DEFAULT_SERVICE = "http://127.0.0.1:8006"
"""REST server of the guest components, in a confidential virtual machine per Pod."""
_VERSION = 2
_DOCUMENT = f"{CERTIFICATE_DOCUMENT_DIRECTORY}/{CERTIFICATE_KEY}"
_TERMINATION = "/dev/termination-log"


def is_signed(plan: EnclavePlan) -> bool:
    """Return whether an enclave's certificates are signed through the API.

    Parameters
    ----------
    plan
        The Enclave and its file; ``tls-mode: self-signed`` declines.
    """
    declined = plan.config.shim.tls_mode is TlsMode.SELF_SIGNED
    return plan.enclave.spec.signed_certificate and not declined


def api_address(
    api: ApiIdentity, directory: str = CERTIFICATE_DOCUMENT_DIRECTORY
) -> dict[str, Any]:
    """Build the API's address as sidecars read it.

    Parameters
    ----------
    api
        The API.
    directory
        Where the sidecar finds the authorities that the API's certificate must chain to.
    """
    address: dict[str, Any] = {"url": api.url}
    if api.authorities:
        address["caFile"] = f"{directory}/{AUTHORITIES_KEY}"
    return address


def certificate_document(api: ApiIdentity, host: HostSpec) -> dict[str, Any]:
    """Build the sidecar's document.

    Parameters
    ----------
    api
        The API.
    host
        The Host; of its processors with a TEE the sidecar also keeps what their maker publishes.

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
        "tokenFile": f"{TOKEN_DIRECTORY}/{TOKEN_FILE}",
        "directory": CERTIFICATE_DIRECTORY,
        "shimStore": certificate_folder(SHIM_STORAGE),
        "terminationFile": _TERMINATION,
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
        **stage_probe("certificate"),
    }
