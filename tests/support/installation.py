"""Cloister's manifests at a real API server: kinds, roles and admission policies as published."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from cloister_crds.kinds import KINDS
from tests.support.server import ApiServer
from tests.support.waiting import until

__all__ = ["MANIFESTS", "install_kinds", "install_policies", "install_roles", "remove_policies"]

MANIFESTS = Path(__file__).resolve().parents[2] / "crds" / "manifests"
"""Folder of all manifests."""
PATHS = {
    "Namespace": "/api/v1/namespaces/{name}",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts/{name}",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps/{name}",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/{name}",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/{name}",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1"
    "/validatingadmissionpolicies/{name}",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1"
    "/validatingadmissionpolicybindings/{name}",
}
"""Where objects of a kind live."""


def _documents(folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Answer path and body of everything in a folder, namespaces and accounts first."""
    files = sorted((MANIFESTS / folder).glob("*.yaml"), key=lambda file: file.stem != "accounts")
    for file in files:
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            yield PATHS[document["kind"]].format(**document["metadata"]), document


async def _install(server: ApiServer, folder: str) -> None:
    for path, document in _documents(folder):
        await server.apply(document, path)


async def install_kinds(server: ApiServer) -> None:
    """Install all CustomResourceDefinitions and wait until they are served."""
    await _install(server, "crds")

    async def served() -> bool:
        answers = [
            await server.get(f"/apis/{kind.INFO.api_version}/{kind.INFO.plural}") for kind in KINDS
        ]
        return all(answer.accepted for answer in answers)

    await until(served, what="all kinds are served")


async def install_roles(server: ApiServer) -> None:
    """Install accounts and roles."""
    await _install(server, "roles")


async def install_policies(server: ApiServer) -> None:
    """Install the admission policies; they work some moments later."""
    await _install(server, "policies")


async def remove_policies(server: ApiServer) -> None:
    """Take the admission policies away, so that others may use the server as they like."""
    for path, document in _documents("policies"):
        if document["kind"].startswith("ValidatingAdmissionPolicy"):
            await server.delete(path)
