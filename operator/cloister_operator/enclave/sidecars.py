"""Our own processes in an enclave's Pod: their names, users, order, places and destinations.

One table for all of them. What each does is told in docs/enclave.md; the containers themselves are
built by the module of each part.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cloister_crds.config import ServiceConfig, Shim, object_name
from cloister_crds.kinds.host import Host, NetworkIsolation
from cloister_operator.enclave.network.addresses import TARGET_ADDRESS
from cloister_operator.enclave.network.cluster_network import ApiEndpoint
from cloister_operator.enclave.network.ports import SHIM_PORT, SSH_PORT
from cloister_operator.enclave.plan import BuildSettings

__all__ = [
    "AGENT",
    "CERTIFICATE",
    "GATE",
    "GUEST",
    "INSTALL",
    "KEEP",
    "MODELS",
    "NET",
    "ORDER",
    "SHIM",
    "SSH",
    "SideCar",
    "destinations",
    "inbound_ports",
    "isolates",
    "name_of",
    "names_of_ours",
    "needs_gate",
    "side_car",
    "unprivileged",
]

GUEST = "/.cloister/bin/guest"
"""The guest in the containers of the file."""


@dataclass(frozen=True, slots=True)
class SideCar:
    """One of our containers."""

    name: str
    """Its name, unless a container of the file has it (`name_of`)."""
    user: int
    """User and group id in the Pod; the packet filter knows the process by it."""


NET = SideCar("net", 0)
"""The network of the enclave. Its user owns the Pod's network namespace, with NET_ADMIN alone."""
SHIM = SideCar("shim", 65532)
"""The way in."""
KEEP = SideCar("keep", 65001)
"""Holds the containers' network namespaces and processes while the others start anew."""
AGENT = SideCar("agent", 65003)
"""Knows what runs. Its readiness is the enclave's."""
CERTIFICATE = SideCar("certificate", 65005)
"""Makes the TLS key and keeps a certificate for it."""
INSTALL = SideCar("guest-install", 65002)
"""Lays the guest out for the containers, and ends."""
MODELS = SideCar("models", 65007)
"""Verifies the model weights, lays them out, and ends."""

GATE = SideCar("gate", 65004)
"""Checks API keys and rates for the shim, where the file asks for either."""
SSH = SideCar("ssh", 65006)
"""Lets people into debug enclaves, and is in no other."""

ORDER = (INSTALL, KEEP, NET, AGENT, CERTIFICATE, MODELS, GATE, SHIM, SSH)
"""All of them, in the order in which they start; the file's containers start before the shim."""


_ASKS_THE_API = (CERTIFICATE, GATE)


def name_of(car: SideCar, containers: Iterable[str]) -> str:
    """Return the name of one of ours in the Pod.

    Parameters
    ----------
    car
        Which one.
    containers
        Names of the containers of the file.

    Returns
    -------
    str
        Its usual name, or with the first free number when a container of the file has that. No
        two of ours meet: none of the usual names is another's with a number.
    """
    taken = {object_name(container) for container in containers}
    name, number = car.name, 1
    while name in taken:
        number += 1
        name = f"{car.name}-{number}"
    return name


def names_of_ours(containers: Iterable[str]) -> dict[str, SideCar]:
    """Return all of ours by their names in the Pod."""
    named = tuple(containers)
    return {name_of(car, named): car for car in ORDER}


def isolates(host: Host) -> bool:
    """Return whether a Host gives each container a network namespace of its own."""
    return host.spec.network_isolation is NetworkIsolation.CONTAINER


def needs_gate(shim: Shim) -> bool:
    """Return whether a file asks for keys or rates, so that its enclaves have a gate."""
    return bool(shim.keyed_endpoints) or shim.rate_limit is not None


def destinations(config: ServiceConfig, api: ApiEndpoint | None) -> list[dict[str, Any]]:
    """Return what each of ours may reach on the network; all that is not listed here is dropped.

    Parameters
    ----------
    config
        The parsed file.
    api
        Where the API is; None = enclaves have no way to it.

    Returns
    -------
    list[dict[str, Any]]
        ``sideCars`` of the document of ``guest net``: TCP destinations by user id.
    """
    upstream = {"address": str(TARGET_ADDRESS), "port": config.shim.upstream_port}
    found: list[dict[str, Any]] = [
        {"name": SHIM.name, "uid": SHIM.user, "destinations": [upstream]}
    ]
    if api is not None:
        doors = [{"address": address, "port": api.port} for address in api.addresses]
        found += [
            {"name": car.name, "uid": car.user, "destinations": doors} for car in _ASKS_THE_API
        ]
    return found


def inbound_ports(*, shells: bool = False) -> list[int]:
    """Return the TCP ports of the Pod that can be reached from outside.

    Parameters
    ----------
    shells
        Whether people may log in to the enclave.
    """
    return [SHIM_PORT, SSH_PORT] if shells else [SHIM_PORT]


def unprivileged(car: SideCar) -> dict[str, Any]:
    """Return the security context of one of ours that has no right.

    Parameters
    ----------
    car
        Which one.
    """
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsGroup": car.user,
        "runAsNonRoot": True,
        "runAsUser": car.user,
    }


def side_car(settings: BuildSettings, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what side-cars have: they are up before the containers and stay until these ended.

    Parameters
    ----------
    settings
        Names the image.
    mounts
        ``volumeMounts``.
    """
    return {
        "image": settings.guest_image,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
