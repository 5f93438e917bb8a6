"""What differs from request to request: beside the measured documents, and named as unmeasured.

The document's fields are those of the guest's package `unmeasured`. Whoever runs the cluster may
choose it, so nothing in it decides what an enclave does: no path, no command, nobody to trust.
"""

from typing import Any

from cloister_operator.enclave.plan import EnclavePlan

__all__ = ["UNMEASURED_KEY", "unmeasured_document"]

UNMEASURED_KEY = "unmeasured.json"
"""Key of the document in the ConfigMap; the parts that need it have it beside their own."""
_VERSION = 1


def unmeasured_document(plan: EnclavePlan) -> dict[str, Any]:
    """Build the document of what is not measured.

    Returns
    -------
    dict[str, Any]
        Host names, and labels of the metrics.
    """
    spec, gpu = plan.enclave.spec, plan.host.spec.gpu
    return {
        "version": _VERSION,
        "hostnames": list(spec.served_names),
        "labels": {
            "id": spec.container.uid,
            "image": f"{spec.repo}@{spec.tag}",
            "cpuType": plan.host.spec.cpu_type or "",
            "gpuType": (gpu.type if gpu is not None and spec.summary.gpus else "") or "",
        },
    }
