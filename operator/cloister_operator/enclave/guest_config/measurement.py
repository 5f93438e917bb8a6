"""How an Enclave publishes its measurement, and the document of what is not measured."""

from typing import Any

from cloister_crds.kinds.host import TEE, HostSpec, TEEUnit
from cloister_crds.measurement import Measurement
from cloister_crds.measurement.enclave import POLICY_FILE
from cloister_crds.measurement.initdata import ANNOTATION
from cloister_operator.enclave.guest_config.certificate import DEFAULT_SERVICE, is_signed
from cloister_operator.enclave.network.addresses import ClusterNetwork, free_block
from cloister_operator.enclave.plan import EnclavePlan

_SOCKET = "unix://"

MEASUREMENT_ANNOTATION = "cloister.dev/measurement"
"""Annotation of the Pod: digest of the measurement document that it was created from."""
INITDATA_ANNOTATION = "cloister.dev/initdata"
"""Annotation of the Pod: digest of its initdata, with the algorithm."""
RULES_ANNOTATION = "cloister.dev/guest-rules"
"""Annotation of the Pod: digest of the rules by which its machine's agent judges the host."""


def annotations(measurement: Measurement) -> dict[str, str]:
    """Return the annotations of the Pod: for its status, and for the runtime."""
    found = {MEASUREMENT_ANNOTATION: measurement.digest}
    if measurement.initdata is not None:
        found |= {
            INITDATA_ANNOTATION: measurement.initdata.digest,
            RULES_ANNOTATION: measurement.document.host.initdata[POLICY_FILE],
            ANNOTATION: measurement.initdata.annotation,
        }
    return found


def attestation_document(plan: EnclavePlan) -> dict[str, Any]:
    """Build the input of the agent's attestation documents.

    Returns
    -------
    dict[str, Any]
        ``attestation`` of the document of ``guest agent``. What is attested is not in it: the agent
        takes that from the measurement, and the key's fingerprint from a path of its own.
    """
    host = plan.host.spec
    document: dict[str, Any] = {"bindsKey": is_signed(plan)}
    if host.tee is not TEE.NONE:
        document["service"] = host.attestation_service or DEFAULT_SERVICE
    return document


def evidence_source(host: HostSpec) -> str:
    """Return where ``guest keep`` gets evidence of the measurement; ``none`` = there is none."""
    if host.tee is TEE.NONE or host.tee_unit is not TEEUnit.POD:
        return "none"
    return host.attestation_service or DEFAULT_SERVICE


def node_socket(plan: EnclavePlan) -> str | None:
    """Return the socket of the node's attestation service; None if the enclave uses none."""
    service = plan.host.spec.attestation_service or ""
    return service.removeprefix(_SOCKET) if service.startswith(_SOCKET) else None


_VERSION = 1


def unmeasured_document(plan: EnclavePlan, cluster: ClusterNetwork) -> dict[str, Any]:
    """Build the document of what is not measured.

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
