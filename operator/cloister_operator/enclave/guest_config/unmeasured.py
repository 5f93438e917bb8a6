"""What differs from request to request: beside the measured documents, and named as unmeasured.

The document's fields are those of the guest's package `unmeasured`. Whoever runs the cluster may
choose it, so nothing in it decides what an enclave does: no path, no command, nobody to trust.
"""

from typing import Any

from cloister_operator.enclave.network.addresses import free_block
from cloister_operator.enclave.network.cluster_network import ClusterNetwork
from cloister_operator.enclave.plan import EnclavePlan

__all__ = ["UNMEASURED_KEY", "unmeasured_document"]

UNMEASURED_KEY = "unmeasured.json"
"""Key of the document in the ConfigMap; the parts that need it have it beside their own."""
_VERSION = 1


def unmeasured_document(plan: EnclavePlan, cluster: ClusterNetwork) -> dict[str, Any]:
    """Build the document of what is not measured.

    Parameters
    ----------
    plan
        The Enclave, its file and its Host.
    cluster
        The cluster's network.

    Returns
    -------
    dict[str, Any]
        Host names, keys that may log in, labels of metrics, where things are in the network.
    """
    spec, gpu = plan.enclave.spec, plan.host.spec.gpu
    keys = [{"name": each.name, "publicKey": each.public_key} for each in spec.ssh_keys]
    return {
        "version": _VERSION,
        "hostnames": list(spec.served_names),
        # The generated name, which the enclave never loses, as it may a custom domain.
        "keyDomain": spec.hostnames[-1] if spec.hostnames else "",
        **({"sshKeys": keys} if plan.has_ssh else {}),
        "cluster": _cluster(cluster),
        "labels": {
            "id": spec.container.uid,
            "image": f"{spec.repo}@{spec.tag}",
            "cpuType": plan.host.spec.cpu_type or "",
            "gpuType": (gpu.type if gpu is not None and spec.summary.gpus else "") or "",
        },
    }


def _cluster(cluster: ClusterNetwork) -> dict[str, Any]:
    """Return where things are in the cluster's network."""
    return {
        "block": str(free_block(cluster.ranges())),
        "denied": list(cluster.denied),
        **({"probeSources": list(cluster.probe_sources)} if cluster.probe_sources else {}),
        "resolvers": cluster.upstream(),
        "refused": cluster.refused(),
        **({"api": list(cluster.api.addresses)} if cluster.api and cluster.api.addresses else {}),
    }
