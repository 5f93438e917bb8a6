"""Cloister's published admission policies on a real API server."""

from collections.abc import Iterator
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
]

MANIFESTS = Path(__file__).resolve().parents[3] / "crds" / "manifests"
"""Folder of all manifests."""
PATHS = {
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1"
    "/validatingadmissionpolicies/{name}",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1"
    "/validatingadmissionpolicybindings/{name}",
}
"""API path of each kind."""


def _documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Return path and body of every policy and binding."""
    for file in sorted((MANIFESTS / "policies").glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            yield PATHS[document["kind"]].format(**document["metadata"]), document


def policy_documents() -> list[dict[str, Any]]:
    """Return every policy and binding."""
    return [document for _, document in _documents()]


def policies_in(namespace: str) -> str:
    """Return the manifests of every policy and binding, for accounts in another namespace."""
    text = yaml.safe_dump_all(policy_documents())
    return text.replace("cloister-system", namespace)


async def install_policies(server: ApiServer) -> None:
    """Install the admission policies; they take effect some moments later."""
    for path, document in _documents():
        await server.apply(document, path)


async def remove_policies(server: ApiServer) -> None:
    """Remove the admission policies, so that they do not restrict other tests."""
    for path, _ in _documents():
        await server.delete(path)
