"""The ConfigMap of an Enclave: the file as it was measured, and the documents of our sidecars.

Immutable, so that what was measured cannot change while the enclave lives.
"""

from base64 import b64encode
from typing import Any

from cloister_crds.measurement import entries
from cloister_crds.measurement.guest_rules import POD_DOCUMENT
from cloister_operator.enclave.documents import measure_enclave, measured_documents, written
from cloister_operator.enclave.guest_config.agent import CONFIG_KEY
from cloister_operator.enclave.guest_config.unmeasured import (
    UNMEASURED_KEY,
    unmeasured_document,
)
from cloister_operator.enclave.network.cluster_network import ClusterNetwork
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan

__all__ = ["build_config_map"]


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
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": plan.metadata(plan.config_map),
        "immutable": True,
        "binaryData": {CONFIG_KEY: b64encode(plan.file).decode()},
        "data": {
            UNMEASURED_KEY: written(unmeasured_document(plan, cluster)),
            **_kept(measured_documents(plan, settings)),
            **entries(measure_enclave(plan, settings)),
        },
    }


def _kept(documents: dict[str, str]) -> dict[str, str]:
    """Return the documents that have an entry: that of the Pod is in the initdata alone."""
    return {name: text for name, text in documents.items() if name != POD_DOCUMENT}
