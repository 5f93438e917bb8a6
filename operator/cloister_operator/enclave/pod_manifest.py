"""The manifest of an Enclave's Pod: its spec, and what was measured of it."""

import json
from typing import Any

from cloister_crds.config import object_name
from cloister_operator.enclave.documents import measure_enclave
from cloister_operator.enclave.guest_config.agent import skipped_stages
from cloister_operator.enclave.guest_config.measurement import annotations
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan
from cloister_operator.enclave.pod.pod import pod_spec

__all__ = ["SKIPPED_ANNOTATION", "build_pod"]

SKIPPED_ANNOTATION = "cloister.dev/skipped-stages"
"""Annotation of the Pod: JSON list of the stages of the boot that are skipped, so that its status
needs no other read of the file."""

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""Annotation: the container that ``kubectl logs`` means without a name."""


def build_pod(plan: EnclavePlan, settings: BuildSettings) -> dict[str, Any]:
    """Build the Pod.

    Returns
    -------
    dict[str, Any]
        Manifest for one create; a running Pod is never changed.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **plan.metadata(plan.name),
            "annotations": {
                _DEFAULT_CONTAINER: object_name(plan.names[0]),
                SKIPPED_ANNOTATION: json.dumps(skipped_stages(plan)),
                **annotations(measure_enclave(plan, settings)),
            },
        },
        "spec": pod_spec(plan, settings),
    }
