"""The TLSRoute of a host name, and the grant that lets it name a Service of an organization.

Routes are in the operator's namespace, so that a listener can accept routes from there alone; an
organization cannot write one. TLS passes through to the enclave, which has the certificate.
"""

from typing import Any

from cloister_clients.kube import KindRef
from cloister_crds.kinds import Container
from cloister_crds.lifecycle.state.observed import Gateway
from cloister_crds.names import (
    CONTAINER_ANNOTATION,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    ORGANIZATION_LABEL,
    distinct_label,
)
from cloister_operator.enclave.network.service import HTTPS_PORT

__all__ = ["build_reference_grant", "build_tls_route"]

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
    container
        The Container that it routes to.
    organization
        Slug of the Organization.
    namespace
        The operator's namespace.
    hostname
        The host name; the route is named after it.
    service
        Name of the Service in the Container's namespace.
    gateway
        What it is attached to.

    Returns
    -------
    dict[str, Any]
        Manifest for server-side apply. An owner in another namespace is not possible (Kubernetes,
        "Owners and Dependents"): the annotation names the Container.
    """
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
    organization
        Slug of the Organization.
    namespace
        Its namespace.
    routes
        TLSRoute as the cluster serves it.
    operator_namespace
        Namespace of the routes.
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
