"""The settings that the operator publishes for the facade, where no operator runs."""

from typing import Any

import yaml

from cloister_crds.installation import CONFIG_MAP_NAME, InstallationSettings
from dev.cluster import Cluster
from tests.support.cluster.accounts import SYSTEM

__all__ = ["publish", "settings_manifest"]


def settings_manifest(
    containers_domain: str, namespace: str = SYSTEM, **changes: Any
) -> dict[str, Any]:
    """Return the ConfigMap that an operator publishes; what is not given is its default."""
    usual: dict[str, Any] = {
        "service": "cloister",
        "platform": "linux/amd64",
        "file_names": ("service-config.yml",),
        "max_file_bytes": 262_144,
        "metering": False,
        "pull_deadline_seconds": 3600,
        "progress_deadline_seconds": 1800,
    }
    settings = InstallationSettings(containers_domain=containers_domain, **(usual | changes))
    return settings.manifest(namespace)


def publish(
    cluster: Cluster, containers_domain: str, *, namespace: str = SYSTEM, **changes: Any
) -> None:
    """Publish settings as an operator does.

    Parameters
    ----------
    namespace
        Namespace of the operator; one of a test's own is created, with the facade's right to read
        the settings.
    changes
        Further settings; the others have the operator's defaults.
    """
    manifests = [settings_manifest(containers_domain, namespace, **changes)]
    if namespace != SYSTEM:
        manifests = [*_place(namespace), *manifests]
    cluster.kubectl(
        *("apply", "--server-side", "--force-conflicts", "-f", "-"),
        stdin=yaml.safe_dump_all(manifests),
    )


def _place(namespace: str) -> list[dict[str, Any]]:
    """Return a namespace in which the facade may read the settings."""
    group = "rbac.authorization.k8s.io"
    rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [CONFIG_MAP_NAME],
        "verbs": ["get", "list", "watch"],
    }
    metadata = {"name": "cloister-api", "namespace": namespace}
    account = {"kind": "ServiceAccount", "name": "cloister-api", "namespace": SYSTEM}
    role = {"apiGroup": group, "kind": "Role", "name": "cloister-api"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [account],
        },
    ]
