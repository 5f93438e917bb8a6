"""The side-car that makes the enclave's TLS key and keeps a certificate for it.

It stands in enclaves that have a token, before the containers of the file: without a certificate
nothing starts. The document's fields are those of the guest's package `certificate`.
"""

from typing import Any

from cloister_crds.config import TlsMode
from cloister_operator.enclave.network.cluster_network import ApiEndpoint
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan
from cloister_operator.enclave.shim_tls import store_of
from cloister_operator.enclave.sidecars import (
    CERTIFICATE,
    SHIM,
    name_of,
    side_car,
    unprivileged,
)

__all__ = [
    "AUTHORITIES_KEY",
    "CERTIFICATE_DIRECTORY",
    "CERTIFICATE_DOCUMENT_DIRECTORY",
    "CERTIFICATE_KEY",
    "CHAIN_FILE",
    "FINGERPRINT_FILE",
    "SHIM_STORAGE",
    "TOKEN_DIRECTORY",
    "TOKEN_FILE",
    "api_address",
    "certificate_container",
    "certificate_document",
    "is_signed",
]

CERTIFICATE_KEY = "certificate.json"
"""Key of the document in the ConfigMap."""
AUTHORITIES_KEY = "api-authorities.pem"
"""Key of the certificates that the API's own must lead to, in the ConfigMap."""
CERTIFICATE_DOCUMENT_DIRECTORY = "/etc/cloister-certificate"
"""Where the side-car finds both."""
TOKEN_DIRECTORY = "/run/cloister/token"  # noqa: S105 - a path
"""Where the enclave's token is, for our own parts that need it."""
TOKEN_FILE = "token"  # noqa: S105 - a name
"""Name of the file with the token."""
CERTIFICATE_DIRECTORY = "/run/cloister/certificate"
"""Memory with ``tls.key``, ``tls.crt`` and the fingerprint of the key, ``tls.spki``."""
FINGERPRINT_FILE = f"{CERTIFICATE_DIRECTORY}/tls.spki"
"""There as soon as the key is; as the guest's package `certificate` names it."""
CHAIN_FILE = f"{CERTIFICATE_DIRECTORY}/tls.crt"
"""There as soon as the key has a certificate."""
SHIM_STORAGE = f"{CERTIFICATE_DIRECTORY}/shim"
"""Where the shim finds the certificates."""
_VERSION = 1
_DOCUMENT = f"{CERTIFICATE_DOCUMENT_DIRECTORY}/{CERTIFICATE_KEY}"
_TERMINATION = "/dev/termination-log"


def is_signed(plan: EnclavePlan) -> bool:
    """Return whether an enclave has its certificates signed by way of the API.

    Parameters
    ----------
    plan
        The Enclave and its file; ``tls-mode: self-signed`` declines.
    """
    declined = plan.config.shim.tls_mode is TlsMode.SELF_SIGNED
    return bool(plan.enclave.spec.token_digest) and not declined


def api_address(
    place: ApiEndpoint, directory: str = CERTIFICATE_DOCUMENT_DIRECTORY
) -> dict[str, Any]:
    """Write where the API is, as side-cars read it.

    Parameters
    ----------
    place
        Where it is.
    directory
        Where the side-car finds the certificates that the API's own must lead to.
    """
    address: dict[str, Any] = {"url": place.url, "connectTo": list(place.addresses)}
    if place.authorities:
        address["caFile"] = f"{directory}/{AUTHORITIES_KEY}"
    return address


def certificate_document(plan: EnclavePlan, place: ApiEndpoint) -> dict[str, Any]:
    """Write what the side-car runs by.

    Parameters
    ----------
    plan
        The Enclave and its file.
    place
        Where the API is.

    Returns
    -------
    dict[str, Any]
        The document of ``guest certificate``.
    """
    return {
        "version": _VERSION,
        "api": api_address(place),
        "tokenFile": f"{TOKEN_DIRECTORY}/{TOKEN_FILE}",
        "hostnames": list(plan.enclave.spec.served_names),
        "directory": CERTIFICATE_DIRECTORY,
        "shimStore": store_of(SHIM_STORAGE),
        "terminationFile": _TERMINATION,
    }


def certificate_container(
    plan: EnclavePlan, settings: BuildSettings, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Build the side-car.

    Returns
    -------
    dict[str, Any]
        An entry of ``spec.initContainers``. Its group is the shim's: what it writes for the group
        is for the shim. How long it may take is the enclave's progress deadline alone.
    """
    return {
        **side_car(settings, mounts),
        "name": name_of(CERTIFICATE, plan.names),
        "command": ["/guest", "certificate", "-spec", _DOCUMENT],
        "securityContext": {**unprivileged(CERTIFICATE), "runAsGroup": SHIM.user},
        "startupProbe": {
            "exec": {"command": ["/guest", "certificate", "-check", _DOCUMENT]},
            "periodSeconds": 1,
            "timeoutSeconds": 10,
            "failureThreshold": 86_400,
        },
        "terminationMessagePath": _TERMINATION,
    }
