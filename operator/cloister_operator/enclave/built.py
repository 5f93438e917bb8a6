"""One Enclave, built once: its documents, its measurement and the manifests that hold them.

Measured documents decide what an enclave does: the measurement names the digest of each, and each
part of the guest compares its own before it reads a byte of it. They are built from the plan and
the settings only, so that they can be measured before the enclave exists. What differs from
request to request is in no measured document.
"""

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from cloister_crds.config import object_name
from cloister_crds.measurement import PUBLISHED, Measurement, PlatformImages, entries, measure
from cloister_crds.measurement.enclave import gets_rules
from cloister_crds.measurement.initdata import POD_DOCUMENT, pod_text
from cloister_operator.enclave import paths
from cloister_operator.enclave.container import container_document, document_key
from cloister_operator.enclave.guest_config.agent import agent_document, skipped_stages
from cloister_operator.enclave.guest_config.certificate import (
    certificate_document,
    gate_document,
    is_signed,
)
from cloister_operator.enclave.guest_config.measurement import annotations, unmeasured_document
from cloister_operator.enclave.guest_config.models import models_document
from cloister_operator.enclave.guest_config.network import network_document
from cloister_operator.enclave.guest_config.ssh import shells_document
from cloister_operator.enclave.guest_policy import pod_data
from cloister_operator.enclave.network.addresses import ClusterNetwork
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan
from cloister_operator.enclave.pod.pod import pod_spec
from cloister_operator.enclave.shim.document import shim_document
from cloister_operator.enclave.shim.encrypted_bodies import bodies_document
from cloister_operator.enclave.sidecars import isolates_containers, needs_key_gate

SKIPPED_ANNOTATION = "cloister.dev/skipped-stages"
"""Annotation of the Pod: JSON list of the stages of the boot that are skipped, so that its status
needs no other read of the file."""

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""Annotation: the container that ``kubectl logs`` means without a name."""


@dataclass(frozen=True, slots=True)
class BuiltEnclave:
    """What an Enclave consists of, before its objects exist."""

    plan: EnclavePlan
    """What it was built from."""
    settings: BuildSettings
    """The administrator's settings that it was built with."""
    documents: dict[str, str]
    """The documents that the measurement names, by the name of the file and key."""
    measurement: Measurement
    """Its measurement."""
    described: dict[str, Any] | None
    """``spec`` of its Pod where the rules of a machine describe it; None elsewhere."""

    def config_map(self, cluster: ClusterNetwork) -> dict[str, Any]:
        """Return the manifest of the ConfigMap: the file as it was measured, and the documents.

        It is immutable, so that what was measured cannot change while the enclave lives. The file
        is in ``binaryData``, so that no byte is read as text on the way. The document of the Pod
        has no entry: it is only in the initdata.
        """
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": self.plan.metadata(self.plan.config_map),
            "immutable": True,
            "binaryData": {paths.CONFIG_KEY: b64encode(self.plan.file).decode()},
            "data": {
                paths.UNMEASURED_KEY: _written(unmeasured_document(self.plan, cluster)),
                **{name: text for name, text in self.documents.items() if name != POD_DOCUMENT},
                **entries(self.measurement),
            },
        }

    def is_published_by(self, config_map: Mapping[str, Any]) -> bool:
        """Return whether a ConfigMap publishes this measurement."""
        data = config_map.get("data") or {}
        published = {name: text for name, text in data.items() if name in PUBLISHED}
        return published == entries(self.measurement)

    def pod(self) -> dict[str, Any]:
        """Return the manifest of the Pod, for one create; a running Pod is never changed."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **self.plan.metadata(self.plan.name),
                "annotations": {
                    _DEFAULT_CONTAINER: object_name(self.plan.names[0]),
                    SKIPPED_ANNOTATION: json.dumps(skipped_stages(self.plan)),
                    **annotations(self.measurement),
                },
            },
            "spec": self.described or pod_spec(self.plan, self.settings),
        }


def build_enclave(plan: EnclavePlan, settings: BuildSettings) -> BuiltEnclave:
    """Build and measure the Enclave of a plan."""
    pod = pod_spec(plan, settings) if gets_rules(plan.host.spec) else None
    documents = _documents(plan, settings, pod)
    spec = plan.enclave.spec
    measurement = measure(
        plan.config,
        spec.config_digest,
        host=plan.host.spec,
        images=PlatformImages(guest=settings.guest_image, shim=settings.shim_image),
        documents=documents,
        service=plan.service(settings),
        debug=spec.debug,
        gpus=spec.request.gpus,
    )
    return BuiltEnclave(plan, settings, documents, measurement, pod)


def _documents(
    plan: EnclavePlan, settings: BuildSettings, pod: dict[str, Any] | None
) -> dict[str, str]:
    """Build the documents that the measurement names.

    Parameters
    ----------
    pod
        ``spec`` of the Pod where the rules of a machine describe it; None elsewhere.

    Returns
    -------
    dict[str, str]
        Text by name, which is the key in the ConfigMap and the name of the file.
    """
    documents: dict[str, Any] = {
        document_key(index): container_document(plan, container)
        for index, container in enumerate(plan.config.containers)
    }
    documents[paths.AGENT_KEY] = agent_document(plan)
    documents[paths.SHIM_KEY] = shim_document(plan, plan.service(settings))
    if isolates_containers(plan.host):
        documents[paths.NETWORK_KEY] = network_document(plan, settings)
    if plan.config.models:
        documents[paths.MODELS_KEY] = models_document(plan)
    if plan.has_ssh:
        documents[paths.SSH_KEY] = shells_document(plan)
    if plan.config.shim.ehbp is not None:
        documents[paths.BODIES_KEY] = bodies_document(plan)
    signed, gated = is_signed(plan), needs_key_gate(plan.config.shim)
    if signed and settings.api is not None:
        documents[paths.CERTIFICATE_KEY] = certificate_document(settings.api, plan.host.spec)
    if gated:
        documents[paths.GATE_KEY] = gate_document(plan, settings)
    # Only parts that the enclave has get a document: an absent part leaves the measurement
    # unchanged.
    texts = {name: _written(document) for name, document in documents.items()}
    if signed or gated:
        texts[paths.AUTHORITIES_KEY] = settings.api.authorities if settings.api is not None else ""
    if pod is not None:
        texts[POD_DOCUMENT] = pod_text(pod_data(plan, pod))
    return texts


def _written(document: dict[str, Any]) -> str:
    """Write a document as short as it can be: etcd and the kubelet hold one of each enclave."""
    return msgspec.json.encode(document, order="sorted").decode()


def build_snapshot(plan: EnclavePlan, values: Mapping[str, bytes]) -> dict[str, Any]:
    """Build the immutable core Secret that the Pod's environment and files refer to.

    Parameters
    ----------
    values
        Value of each secret that the file names.

    Returns
    -------
    dict[str, Any]
        Manifest of the Secret; it holds the named secrets, and nothing else of `values`.

    Raises
    ------
    KeyError
        When a secret of the file is missing in `values`; the decision has looked all of them up.
    """
    data = {name: b64encode(values[name]).decode() for name in plan.secrets}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": plan.metadata(plan.snapshot),
        "immutable": True,
        "data": data,
    }
