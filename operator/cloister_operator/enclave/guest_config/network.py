"""The side-cars of an enclave's network, and the document that ``guest net`` runs by.

The document's fields are those of the guest's package `plan`; docs/enclave.md tells what they do.
"""

from typing import Any

from cloister_operator.enclave.network.addresses import networks_of, rooms_of
from cloister_operator.enclave.network.cluster_network import ClusterNetwork
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan
from cloister_operator.enclave.sidecars import (
    KEEP,
    NET,
    destinations,
    inbound_ports,
    name_of,
    side_car,
    unprivileged,
)

__all__ = [
    "KEEPER_DIRECTORY",
    "KEEPER_SOCKET",
    "NETWORK_DIRECTORY",
    "NETWORK_KEY",
    "NETWORK_STATUS",
    "PLAN_DIRECTORY",
    "keep_container",
    "net_container",
    "network_document",
]

NETWORK_KEY = "network.json"
"""Key of the document in the ConfigMap."""
PLAN_DIRECTORY = "/etc/cloister-network"
"""Where ``guest net`` finds its document."""
NETWORK_DIRECTORY = "/run/cloister/network"
"""Directory of ``guest net`` with the wiring sockets and its status."""
KEEPER_DIRECTORY = "/run/cloister/keep"
"""Directory with the keeper's socket; mounted in our side-cars alone."""
_VERSION = 1
_UPLINK = "eth0"
"""Device that container runtimes make for a Pod (CRI: the first network's interface)."""
NETWORK_STATUS = f"{NETWORK_DIRECTORY}/status.json"
"""Where ``guest net`` tells how the network is."""
KEEPER_SOCKET = f"{KEEPER_DIRECTORY}/keeper.sock"
"""Socket of ``guest keep``."""
_STARTED = {"periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 120}


def network_document(plan: EnclavePlan, surroundings: ClusterNetwork) -> dict[str, Any]:
    """Write what the network of an enclave is.

    Returns
    -------
    dict[str, Any]
        The document of ``guest net``.
    """
    networks = networks_of(plan.config, surroundings.ranges())
    return {
        "version": _VERSION,
        "uplink": _UPLINK,
        "networks": [
            {
                "name": each.name,
                "egress": str(each.egress),
                "subnet": str(each.subnet),
                **({"allow": list(each.allow)} if each.allow else {}),
            }
            for each in networks
        ],
        "namespaces": [
            {
                "name": room.name,
                "containers": list(room.containers),
                "attachments": [
                    {"network": each.network, "address": str(each.address)}
                    for each in room.attachments
                ],
            }
            for room in rooms_of(plan.config, networks)
        ],
        "denied": list(surroundings.denied),
        "inbound": inbound_ports(shells=plan.lets_people_in),
        "sideCars": destinations(plan.config, surroundings.api),
        "resolver": {
            "uid": NET.user,
            "upstream": surroundings.upstream(),
            "refused": surroundings.refused(),
        },
        "socketDirectory": f"{NETWORK_DIRECTORY}/wiring",
        "statusFile": NETWORK_STATUS,
        "keeperSocket": KEEPER_SOCKET,
    }


def net_container(
    plan: EnclavePlan, settings: BuildSettings, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Build the side-car that is the network: root of the Pod with NET_ADMIN and nothing else."""
    rights = unprivileged(NET)
    del rights["runAsNonRoot"]
    return {
        **side_car(settings, mounts),
        "name": name_of(NET, plan.names),
        "command": ["/guest", "net", "-plan", f"{PLAN_DIRECTORY}/{NETWORK_KEY}"],
        "securityContext": {**rights, "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}},
        "startupProbe": {
            "exec": {"command": ["/guest", "net", "-check", NETWORK_STATUS]},
            **_STARTED,
        },
    }


def keep_container(
    plan: EnclavePlan, settings: BuildSettings, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Build the side-car that holds namespaces and processes while other side-cars start anew."""
    return {
        **side_car(settings, mounts),
        "name": name_of(KEEP, plan.names),
        "command": ["/guest", "keep", "-socket", KEEPER_SOCKET],
        "securityContext": unprivileged(KEEP),
        "startupProbe": {
            "exec": {"command": ["/guest", "keep", "-check", KEEPER_SOCKET]},
            **_STARTED,
        },
    }
