"""The sidecars of an enclave's network, and the document of ``guest net``.

The document's fields are those of the guest's package `plan`; docs/enclave.md describes them.
"""

from typing import Any

from cloister_operator.enclave import paths
from cloister_operator.enclave.guest_config.measurement import evidence_source
from cloister_operator.enclave.network.addresses import PROBE_PORT, plan_namespaces, plan_networks
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan
from cloister_operator.enclave.sidecars import (
    KEEP,
    NET,
    destinations,
    inbound_ports,
    sidecar,
    sidecar_name,
    unprivileged,
)

_VERSION = 2
_UPLINK = "eth0"
"""Device that container runtimes create for a Pod (CRI: the first network's interface)."""


def network_document(plan: EnclavePlan, settings: BuildSettings) -> dict[str, Any]:
    """Build the document of an enclave's network.

    Returns
    -------
    dict[str, Any]
        The document of ``guest net``.
    """
    networks = plan_networks(plan.config)
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
                "name": namespace.name,
                "containers": list(namespace.containers),
                "attachments": [
                    {"network": each.network, "address": str(each.address)}
                    for each in namespace.attachments
                ],
            }
            for namespace in plan_namespaces(plan.config, networks)
        ],
        "inbound": inbound_ports(ssh=plan.has_ssh),
        "probes": PROBE_PORT,
        "sideCars": destinations(plan.config, settings.api),
        "resolver": {"uid": NET.user},
        "socketDirectory": f"{paths.NETWORK}/wiring",
        "statusFile": paths.NETWORK_STATUS_FILE,
        "keeperSocket": paths.KEEPER_SOCKET,
    }


def net_container(
    plan: EnclavePlan, settings: BuildSettings, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Build the network sidecar: root in the Pod with NET_ADMIN and nothing else."""
    rights = unprivileged(NET)
    del rights["runAsNonRoot"]
    return {
        **sidecar(settings, mounts),
        "name": sidecar_name(NET, plan.names),
        "command": ["/guest", "net", "-plan", f"{paths.NETWORK_CONFIG}/{paths.NETWORK_KEY}"],
        # Whence the kubelet's probes come.
        "env": [{"name": "HOST_IPS", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIPs"}}}],
        "securityContext": {**rights, "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}},
    }


def keep_container(
    plan: EnclavePlan, settings: BuildSettings, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Build the sidecar that holds namespaces and processes while other sidecars restart.

    It is the only native one (Kubernetes, "Sidecar Containers"): it starts before all others and
    ends after them, and installs the guest and the measurement for them. The others start together,
    and wait inside for what they need of each other.
    """
    evidence = evidence_source(plan.host.spec)
    return {
        **sidecar(settings, mounts),
        "name": sidecar_name(KEEP, plan.names),
        "command": ["/guest", "keep", "-socket", paths.KEEPER_SOCKET, "-evidence", evidence],
        # The kubelet starts the next containers after the hook: they find the guest there.
        "lifecycle": {"postStart": {"exec": {"command": ["/guest", "install", paths.GUEST]}}},
        "securityContext": unprivileged(KEEP),
    }
