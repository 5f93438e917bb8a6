"""Cloister's published admission policies on a real API server."""

import uuid
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from tests.support.cluster.api_server import ApiServer
from tests.support.waiting import until

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

    The validating ones are in force afterwards; the mutating ones some moments later.
    """
    folders = [*(["mutations"] if await serves_mutations(server) else []), "policies"]
    for folder in folders:
        for path, document in _documents(folder):
            await server.apply(document, path)
    await _until_in_force(server)


async def _until_in_force(server: ApiServer) -> None:
    """Wait until the server obeys every validating policy that there is.

    Once a second it takes over all of them as they are at that moment, so that some of those which
    are made one after the other may be in force a second before the rest, and those that were
    removed a second longer. When it obeys the last one, whose name is new, it obeys all.
    """
    name = f"tests-{uuid.uuid4().hex}"
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    maps = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    policy = {
        "matchConstraints": {"resourceRules": [{**maps, "resources": ["configmaps"]}]},
        "matchConditions": [{"name": "own", "expression": f"object.metadata.name == '{name}'"}],
        "validations": [{"expression": "false"}],
    }
    bound = {"policyName": name, "validationActions": ["Deny"]}
    made = {"ValidatingAdmissionPolicy": policy, "ValidatingAdmissionPolicyBinding": bound}
    paths = {kind: f"{GROUP}/{PATHS[kind]}/{name}" for kind in made}
    probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}

    async def refused() -> bool:
        verdict = await server.post("/api/v1/namespaces/default/configmaps", probe, dryRun="All")
        return name in verdict.message and not verdict.accepted

    try:
        for kind, spec in made.items():
            await server.apply({**group, "kind": kind, "spec": spec}, paths[kind])
        await until(refused, what="the admission policies are in force")
    finally:
        for path in paths.values():
            await server.delete(path)


async def remove_policies(server: ApiServer) -> None:
    """Remove the admission policies, so that they do not restrict other tests."""
    for path, _ in (*_documents(), *_documents("mutations")):
        await server.delete(path)
