"""The Service of a Container, the TLSRoutes of its host names, and the grant that connects them."""

from typing import Any

from cloister_clients.kube import KindRef
from cloister_crds.kinds import Container
from cloister_crds.lifecycle.state.observed import Gateway
from cloister_crds.names import (
    CONTAINER_ANNOTATION,
    CONTAINER_LABEL,
    ENCLAVE_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    ORGANIZATION_LABEL,
    distinct_label,
    preview_service_name,
    service_name,
)
from cloister_operator.enclave.network.addresses import SHIM_PORT

HTTPS_PORT = 443
"""Port of the Service."""


def build_service(container: Container, organization: str, enclave: str) -> dict[str, Any]:
    """Build the Service that routes to one Enclave.

    Parameters
    ----------
    container
        The Container; it owns the Service.

    Returns
    -------
    dict[str, Any]
        Manifest for server-side apply. Not-ready addresses are published: a container that
        exited with ``restart: no`` permanently keeps its Pod from being Ready, though it serves.
    """
    return _service(container, organization, service_name(container.metadata.name), enclave)


def build_preview(container: Container, organization: str, enclave: str) -> dict[str, Any]:
    """Build the Service at which a staged update can be tried before it is promoted.

    Parameters
    ----------
    container
        The Container; it owns the Service.
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


GRANT_NAME = "cloister-gateway"


def build_tls_route(
    ref: KindRef,
    container: Container,
    organization: str,
    *,
    namespace: str,
    hostname: str,
    service: str,
    gateway: Gateway,
) -> dict[str, Any]:
    """Build the route of a host name.

    Parameters
    ----------
    ref
        TLSRoute as the cluster serves it.
    hostname
        The host name; the route is named after it.

    Returns
    -------
    dict[str, Any]
        Manifest for server-side apply. An owner in another namespace is not possible (Kubernetes,
        "Owners and Dependents"): the annotation names the Container.
    """
    # Without a section the route attaches to every listener that accepts it.
    section = {"sectionName": gateway.section} if gateway.section else {}
    place = container.metadata.namespace
    backend = {"name": service, "namespace": place, "port": HTTPS_PORT}
    return {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "metadata": {
            "name": hostname,
            "namespace": namespace,
            "labels": {
                MANAGED_BY_LABEL: MANAGED_BY,
                ORGANIZATION_LABEL: distinct_label(organization),
            },
            "annotations": {CONTAINER_ANNOTATION: f"{place}/{container.metadata.name}"},
        },
        "spec": {
            "parentRefs": [{"name": gateway.name, "namespace": gateway.namespace, **section}],
            "hostnames": [hostname],
            "rules": [{"backendRefs": [backend]}],
        },
    }


def build_reference_grant(
    ref: KindRef, organization: str, namespace: str, *, routes: KindRef, operator_namespace: str
) -> dict[str, Any]:
    """Build what lets routes of the operator's namespace name the Services of an organization.

    Parameters
    ----------
    ref
        ReferenceGrant as the cluster serves it.
    routes
        TLSRoute as the cluster serves it.
    """
    return {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "metadata": {
            "name": GRANT_NAME,
            "namespace": namespace,
            "labels": {
                MANAGED_BY_LABEL: MANAGED_BY,
                ORGANIZATION_LABEL: distinct_label(organization),
            },
        },
        "spec": {
            "from": [{"group": routes.group, "kind": routes.kind, "namespace": operator_namespace}],
            "to": [{"group": "", "kind": "Service"}],
        },
    }
