"""The Service of a Container: one address for the Enclave that serves."""

from typing import Any

from cloister_crds.kinds import Container
from cloister_crds.names import (
    CONTAINER_LABEL,
    ENCLAVE_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    ORGANIZATION_LABEL,
    distinct_label,
    preview_service_name,
    service_name,
)
from cloister_operator.enclave.network.ports import SHIM_PORT

__all__ = ["HTTPS_PORT", "build_preview", "build_service"]

HTTPS_PORT = 443
"""Port of the Service."""


def build_service(container: Container, organization: str, enclave: str) -> dict[str, Any]:
    """Build the Service that routes to one Enclave.

    Parameters
    ----------
    container
        The Container; it owns the Service.
    organization
        Slug of the Organization.
    enclave
        Name of the Enclave that serves.

    Returns
    -------
    dict[str, Any]
        Manifest for server-side apply. Not-ready addresses are published: a container that
        exited with ``restart: no`` keeps its Pod from being Ready for good, though it serves.
    """
    return _service(container, organization, service_name(container.metadata.name), enclave)


def build_preview(container: Container, organization: str, enclave: str) -> dict[str, Any]:
    """Build the Service at which a staged update can be tried before it is promoted.

    Parameters
    ----------
    container
        The Container; it owns the Service.
    organization
        Slug of the Organization.
    enclave
        Name of the Enclave that waits.
    """
    name = preview_service_name(container.metadata.name)
    return _service(container, organization, name, enclave)


def _service(container: Container, organization: str, name: str, enclave: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": container.metadata.namespace,
            "labels": {
                MANAGED_BY_LABEL: MANAGED_BY,
                ORGANIZATION_LABEL: distinct_label(organization),
                CONTAINER_LABEL: service_name(container.metadata.name),
            },
            "ownerReferences": [container.owner_reference()],
        },
        "spec": {
            "type": "ClusterIP",
            "publishNotReadyAddresses": True,
            "selector": {ENCLAVE_LABEL: enclave},
            "ports": [
                {"name": "https", "port": HTTPS_PORT, "targetPort": SHIM_PORT, "protocol": "TCP"}
            ],
        },
    }
