"""The documents by which the parts of an enclave work, and their measurement.

Measured documents decide what an enclave does: the measurement names the digest of each, and each
part of the guest compares its own before it reads a byte of it. They are built from the plan and
the settings alone, so that they can be measured before the enclave exists. What differs from
request to request is in no measured document.
"""

from typing import Any

import msgspec

from cloister_crds.measurement import Measurement, PlatformImages, measure
from cloister_crds.measurement.enclave import gets_rules
from cloister_crds.measurement.guest_rules import POD_DOCUMENT, pod_text
from cloister_operator.enclave.container.document import container_document, document_key
from cloister_operator.enclave.guest_config.agent import AGENT_KEY, agent_document
from cloister_operator.enclave.guest_config.certificate import (
    AUTHORITIES_KEY,
    CERTIFICATE_KEY,
    certificate_document,
    is_signed,
)
from cloister_operator.enclave.guest_config.key_gate import GATE_KEY, gate_document
from cloister_operator.enclave.guest_config.models import MODELS_KEY, models_document
from cloister_operator.enclave.guest_config.network import NETWORK_KEY, network_document
from cloister_operator.enclave.guest_config.ssh import SHELLS_KEY, shells_document
from cloister_operator.enclave.guest_policy.pod_data import pod_data
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan
from cloister_operator.enclave.pod.pod import pod_spec
from cloister_operator.enclave.shim.document import SHIM_KEY, shim_document
from cloister_operator.enclave.shim.encrypted_bodies import BODIES_KEY, bodies_document
from cloister_operator.enclave.sidecars import isolates_containers, needs_key_gate

__all__ = ["measure_enclave", "measured_documents", "written"]


def measured_documents(plan: EnclavePlan, settings: BuildSettings) -> dict[str, str]:
    """Build the documents that the measurement names.

    Returns
    -------
    dict[str, str]
        Text by name, which is the key in the ConfigMap and the name of the file.
    """
    documents: dict[str, Any] = {
        document_key(index): container_document(plan, container)
        for index, container in enumerate(plan.config.containers)
    }
    documents[AGENT_KEY] = agent_document(plan)
    documents[SHIM_KEY] = shim_document(plan, settings.service)
    if isolates_containers(plan.host):
        documents[NETWORK_KEY] = network_document(plan, settings)
    if plan.config.models:
        documents[MODELS_KEY] = models_document(plan)
    if plan.has_ssh:
        documents[SHELLS_KEY] = shells_document(plan)
    if plan.config.shim.ehbp is not None:
        documents[BODIES_KEY] = bodies_document(plan)
    signed, gated = is_signed(plan), needs_key_gate(plan.config.shim)
    if signed and settings.api is not None:
        documents[CERTIFICATE_KEY] = certificate_document(settings.api, plan.host.spec)
    if gated:
        documents[GATE_KEY] = gate_document(plan, settings)
    texts = {name: written(document) for name, document in documents.items()}
    if signed or gated:
        texts[AUTHORITIES_KEY] = settings.api.authorities if settings.api is not None else ""
    if gets_rules(plan.host.spec):
        texts[POD_DOCUMENT] = pod_text(pod_data(plan, pod_spec(plan, settings)))
    return texts


def measure_enclave(plan: EnclavePlan, settings: BuildSettings) -> Measurement:
    """Measure the Enclave of a plan."""
    spec = plan.enclave.spec
    return measure(
        plan.config,
        spec.config_digest,
        host=plan.host.spec,
        images=PlatformImages(guest=settings.guest_image, shim=settings.shim_image),
        documents=measured_documents(plan, settings),
        service=settings.service,
        debug=spec.debug,
        gpus=spec.request.gpus,
    )


def written(document: dict[str, Any]) -> str:
    """Write a document as short as it can be: etcd and the kubelet hold one of each enclave."""
    return msgspec.json.encode(document, order="sorted").decode()
