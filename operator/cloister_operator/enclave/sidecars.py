"""Our sidecars that an Enclave needs, and where its shim finds certificates."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cloister_crds.config import ServiceConfig, Shim, object_name
from cloister_crds.kinds.host import Host, NetworkIsolation
from cloister_operator.enclave.network.addresses import (
    SHIM_PORT,
    SSH_PORT,
    TARGET_ADDRESS,
    ApiEndpoint,
)
from cloister_operator.enclave.plan import ApiIdentity, BuildSettings

_ISSUER = "certificate.invalid-directory"
"""Folder of an issuer in Caddy's storage: host and path of the one that the shim names."""


def certificate_folder(storage: str) -> str:
    """Return the folder in Caddy's storage with a folder for each name."""
    return f"{storage}/certificates/{_ISSUER}"


LOOPBACK = "127.0.0.1"
"""Address of the upstream where all containers share the Pod's namespace."""


@dataclass(frozen=True, slots=True)
class SideCar:
    """One of our own containers."""

    name: str
    """Its name, unless a container of the file has it (`sidecar_name`)."""
    user: int
    """User and group id in the Pod; the packet filter knows the process by it."""


NET = SideCar("net", 0)
"""The network of the enclave. Its user owns the Pod's network namespace, with only NET_ADMIN."""
SHIM = SideCar("shim", 65532)
"""The TLS front, through which all requests arrive."""
KEEP = SideCar("keep", 65001)
"""Installs the guest for the containers, and holds their network namespaces and processes while the
others restart."""
AGENT = SideCar("agent", 65003)
"""Supervises the boot. Its readiness is the enclave's."""
CERTIFICATE = SideCar("certificate", 65005)
"""Creates the TLS key and renews the certificate for it."""
MODELS = SideCar("models", 65007)
"""Verifies the models, unpacks them, and exits."""

GATE = SideCar("gate", 65004)
"""The key gate: checks API keys and rates for the shim, where the file requires either."""
EHBP = SideCar("ehbp", 65008)
"""Decrypts and encrypts bodies for the shim, where the file has ``ehbp``."""
SSH = SideCar("ssh", 65006)
"""The SSH server of debug enclaves; others do not have it."""

ORDER = (KEEP, MODELS, NET, AGENT, CERTIFICATE, GATE, EHBP, SHIM, SSH)
"""All of them, in the order in which they start; the file's containers start before the shim."""


_API_CLIENTS = (CERTIFICATE, GATE)


def sidecar_name(car: SideCar, containers: Iterable[str]) -> str:
    """Return the name of a sidecar in the Pod, given the names of the containers of the file.

    Returns
    -------
    str
        Its usual name, or with the first free number when a container of the file has that. No two
        sidecars collide: none of the usual names is another's with a number.
    """
    taken = {object_name(container) for container in containers}
    name, number = car.name, 1
    while name in taken:
        number += 1
        name = f"{car.name}-{number}"
    return name


def sidecar_names(containers: Iterable[str]) -> dict[str, SideCar]:
    """Return all sidecars by their names in the Pod."""
    named = tuple(containers)
    return {sidecar_name(car, named): car for car in ORDER}


def isolates_containers(host: Host) -> bool:
    """Return whether each container on a Host has a network namespace of its own."""
    return host.spec.network_isolation is NetworkIsolation.CONTAINER


def needs_key_gate(shim: Shim) -> bool:
    """Return whether a file requires keys or rates, so that its enclaves have a key gate."""
    return bool(shim.keyed_endpoints) or shim.rate_limit is not None


def destinations(config: ServiceConfig, api: ApiIdentity | None) -> list[dict[str, Any]]:
    """Return what each sidecar may reach on the network; all that is not listed is dropped.

    Parameters
    ----------
    config
        The parsed file.
    api
        The API; None if enclaves cannot reach it.

    Returns
    -------
    list[dict[str, Any]]
        ``sideCars`` of the document of ``guest net``: TCP destinations by user id. The addresses of
        the API are not measured, its port is.
    """
    upstream = {"address": str(TARGET_ADDRESS), "port": config.shim.upstream_port}
    found: list[dict[str, Any]] = [
        {"name": SHIM.name, "uid": SHIM.user, "destinations": [upstream]}
    ]
    if config.shim.ehbp is not None:
        found.append({"name": EHBP.name, "uid": EHBP.user, "destinations": [upstream]})
    if api is not None:
        port = ApiEndpoint(api.url, ()).port
        found += [
            {"name": car.name, "uid": car.user, "destinations": [], "apiPort": port}
            for car in _API_CLIENTS
        ]
    return found


def inbound_ports(*, ssh: bool = False) -> list[int]:
    """Return the TCP ports of the Pod that can be reached from outside, with or without SSH."""
    return [SHIM_PORT, SSH_PORT] if ssh else [SHIM_PORT]


def unprivileged(car: SideCar) -> dict[str, Any]:
    """Return the security context of a sidecar without any privilege."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsGroup": car.user,
        "runAsNonRoot": True,
        "runAsUser": car.user,
    }


def sidecar(settings: BuildSettings, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the fields that our containers have in common: they are always restarted."""
    return {
        "image": settings.guest_image,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
