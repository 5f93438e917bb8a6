"""The Metrics API where no node runs: a custom resource of the name, group and version of its own.

The API server serves it at the paths of metrics-server, with its authorization and its selectors of
labels; only what the Pods used is what the test writes.
"""

import contextlib
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from cloister_clients.kube import KubeClient
from cloister_clients.kube.kinds import CUSTOM_RESOURCE_DEFINITION, POD_METRICS
from cloister_crds.names import ENCLAVE_LABEL
from tests.support.waiting import until

__all__ = ["metrics_api", "report_usage"]

NAME = f"{POD_METRICS.plural}.{POD_METRICS.group}"


def definition() -> dict[str, Any]:
    """Build the CustomResourceDefinition; groups of Kubernetes need the annotation."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "metadata": {
            "name": NAME,
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": POD_METRICS.group,
            "scope": "Namespaced",
            "names": {"plural": POD_METRICS.plural, "kind": POD_METRICS.kind},
            "versions": [
                {
                    "name": POD_METRICS.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


@contextlib.asynccontextmanager
async def metrics_api(kube: KubeClient) -> AsyncIterator[None]:
    """Serve the Metrics API until the block ends."""
    await kube.create(CUSTOM_RESOURCE_DEFINITION, definition())
    try:

        async def served() -> bool:
            found = await kube.get(CUSTOM_RESOURCE_DEFINITION, NAME)
            conditions = (found.get("status") or {}).get("conditions") or ()
            return any(
                (one["type"], one["status"]) == ("Established", "True") for one in conditions
            )

        await until(served, every=0.05, what="the Metrics API")
        yield
    finally:
        await kube.delete(CUSTOM_RESOURCE_DEFINITION, NAME)


async def report_usage(
    kube: KubeClient, namespace: str, pod: str, at: datetime, **containers: dict[str, str]
) -> None:
    """Report what the containers of an enclave's Pod used in the half minute before a time."""
    body = {
        "metadata": {"name": pod, "labels": {ENCLAVE_LABEL: pod}},
        "timestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "window": "30s",
        "containers": [{"name": name, "usage": usage} for name, usage in containers.items()],
    }
    await kube.create(POD_METRICS, body, namespace)
