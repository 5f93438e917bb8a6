"""The ConfigMap of an Enclave: the file as it was measured, and the documents of our sidecars.

Immutable, so that what was measured cannot change while the enclave lives.
"""

from base64 import b64encode
from typing import Any

from cloister_crds.measurement import entries
from cloister_crds.measurement.guest_rules import POD_DOCUMENT
from cloister_operator.enclave.documents import measure_enclave, measured_documents, written
from cloister_operator.enclave.guest_config.agent import CONFIG_KEY
from cloister_operator.enclave.guest_config.certificate import (
    AUTHORITIES_KEY,
    CERTIFICATE_KEY,
    SHIM_STORAGE,
    certificate_document,
    is_signed,
)
from cloister_operator.enclave.guest_config.key_gate import GATE_KEY, gate_document
from cloister_operator.enclave.guest_config.network import NETWORK_KEY, network_document
from cloister_operator.enclave.guest_config.ssh import SHELLS_KEY, host_key_route, shells_document
from cloister_operator.enclave.guest_config.unmeasured import (
    UNMEASURED_KEY,
    unmeasured_document,
)
from cloister_operator.enclave.network.addresses import TARGET_ADDRESS
from cloister_operator.enclave.network.cluster_network import ClusterNetwork
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan
from cloister_operator.enclave.shim.caddy import SHIM_KEY, shim_config
from cloister_operator.enclave.sidecars import isolates_containers, needs_key_gate

__all__ = ["build_config_map"]

_LOOPBACK = "127.0.0.1"


def build_config_map(
    plan: EnclavePlan, settings: BuildSettings, cluster: ClusterNetwork
) -> dict[str, Any]:
    """Build the ConfigMap.

    Returns
    -------
    dict[str, Any]
        Manifest of an immutable ConfigMap; the file's bytes are kept as they are (in
        ``binaryData``, so that no byte is read as text on the way).
    """
    upstream = str(TARGET_ADDRESS) if isolates_containers(plan.host) else _LOOPBACK
    documents: dict[str, Any] = {
        UNMEASURED_KEY: unmeasured_document(plan),
        SHIM_KEY: shim_config(
            plan.config.shim,
            plan.enclave.spec.served_names,
            upstream=upstream,
            before=[host_key_route(settings.service)] if plan.has_ssh else (),
            service=settings.service,
            storage=SHIM_STORAGE if is_signed(plan) else None,
        ),
    }
    if plan.has_ssh:
        documents[SHELLS_KEY] = shells_document(plan)
    if isolates_containers(plan.host):
        documents[NETWORK_KEY] = network_document(plan, cluster)
    texts: dict[str, str] = {}
    if is_signed(plan) and cluster.api is not None:
        documents[CERTIFICATE_KEY] = certificate_document(plan, cluster.api)
        texts[AUTHORITIES_KEY] = cluster.api.authorities
    if needs_key_gate(plan.config.shim):
        documents[GATE_KEY] = gate_document(plan, settings, cluster.api)
        texts[AUTHORITIES_KEY] = cluster.api.authorities if cluster.api else ""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": plan.metadata(plan.config_map),
        "immutable": True,
        "binaryData": {CONFIG_KEY: b64encode(plan.file).decode()},
        "data": {
            **{name: written(document) for name, document in documents.items()},
            **texts,
            **_kept(measured_documents(plan, settings)),
            **entries(measure_enclave(plan, settings)),
        },
    }


def _kept(documents: dict[str, str]) -> dict[str, str]:
    """Return the documents that have an entry: that of the Pod is in the initdata alone."""
    return {name: text for name, text in documents.items() if name != POD_DOCUMENT}
