"""Cloister's published admission policies on a real API server."""

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from tests.support.cluster.api_server import ApiServer

__all__ = [
    "MANIFESTS",
    "install_policies",
    "policies_in",
    "policy_documents",
    "remove_policies",
    "serves_mutations",
]

MANIFESTS = Path(__file__).resolve().parents[3] / "crds" / "manifests"
"""Folder of all manifests."""
GROUP = "/apis/admissionregistration.k8s.io/v1"
"""Path of the API group of policies."""
PATHS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}
"""Path of each kind in the group."""


def _documents(folder: str = "policies") -> Iterator[tuple[str, dict[str, Any]]]:
    """Return path and body of every policy and binding of a folder of the manifests."""
    for file in sorted((MANIFESTS / folder).glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            place = f"{GROUP}/{PATHS[document['kind']]}/{document['metadata']['name']}"
            yield place, document


def policy_documents() -> list[dict[str, Any]]:
    """Return every policy and binding."""
    return [document for _, document in _documents()]


def policies_in(namespace: str) -> str:
    """Return the manifests of every policy and binding, for accounts in another namespace."""
    text = yaml.safe_dump_all(policy_documents())
    return text.replace("cloister-system", namespace)


async def serves_mutations(server: ApiServer) -> bool:
    """Return whether a server has mutating admission policies (Kubernetes 1.36)."""
    found = await server.get(f"{GROUP}/{PATHS['MutatingAdmissionPolicy']}")
    return found.status != HTTPStatus.NOT_FOUND


async def install_policies(server: ApiServer) -> None:
    """Install the admission policies, mutating ones where the server has them.

    They take effect some moments later.
    """
    folders = ["policies", *(["mutations"] if await serves_mutations(server) else [])]
    for folder in folders:
        for path, document in _documents(folder):
            await server.apply(document, path)


async def remove_policies(server: ApiServer) -> None:
    """Remove the admission policies, so that they do not restrict other tests."""
    for path, _ in (*_documents(), *_documents("mutations")):
        await server.delete(path)
