"""The two accounts of Cloister: programs of tests run as them, with the roles that are shipped."""

from pathlib import Path
from typing import Any

import yaml

from cloister_clients.kube import KindRef
from cloister_clients.kube.kinds import NAMESPACE, ROLE_BINDING
from cloister_operator.enclave.tenant import build_namespace, build_role_bindings
from dev.cluster import Cluster
from tests.support.cluster.admission_policies import MANIFESTS

__all__ = [
    "SYSTEM",
    "account_kubeconfig",
    "account_user",
    "install_roles",
    "organization_namespace",
    "roles_in",
]

SYSTEM = "cloister-system"
"""Namespace of the accounts as they are shipped."""
_ROLES = MANIFESTS / "roles"


def install_roles(cluster: Cluster) -> None:
    """Apply accounts and roles; idempotent."""
    for place in (_ROLES / "accounts.yaml", _ROLES):
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(place))


def account_user(program: str, namespace: str = SYSTEM) -> dict[str, str]:
    """Return the part of a kubeconfig's user that gives up all rights but those of an account."""
    return {"as": f"system:serviceaccount:{namespace}:cloister-{program}"}


def account_kubeconfig(
    cluster: Cluster, program: str, folder: Path, namespace: str = SYSTEM
) -> Path:
    """Write a kubeconfig with the rights of an account and no others."""
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    document["users"][0]["user"] |= account_user(program, namespace)
    path = folder / f"cloister-{program}.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def organization_namespace(slug: str) -> list[tuple[KindRef, dict[str, Any]]]:
    """Return the namespace of an organization with its RoleBindings, as the operator makes them."""
    name = f"org-{slug}"
    bindings = build_role_bindings(slug, name, operator_namespace=SYSTEM)
    return [
        (NAMESPACE, build_namespace(slug, name)),
        *((ROLE_BINDING, each) for each in bindings),
    ]


def roles_in(namespace: str) -> list[dict[str, Any]]:
    """Return the shipped roles and bindings, for accounts in another namespace."""
    found = []
    for file in ("operator.yaml", "api.yaml"):
        for document in yaml.safe_load_all((_ROLES / file).read_text()):
            metadata = document["metadata"]
            if metadata.get("namespace") == SYSTEM:
                metadata["namespace"] = namespace
            elif "subjects" in document:
                metadata["name"] += f"-{namespace}"
            for subject in document.get("subjects", ()):
                subject["namespace"] = namespace
            found.append(document)
    return found
