"""The objects of the demo, as an administrator and a user would write them."""

from typing import Any

API_VERSION = "cloister.dev/v1alpha1"
ORGANIZATION = "acme"
"""Slug of the demo's organization."""
NAMESPACE = f"org-{ORGANIZATION}"
"""Its namespace."""
USER = "ada@example.com"
"""Its administrator."""
HOST = "laptop"
"""Name of the demo's Host."""


def host() -> dict[str, Any]:
    """Return the Host: this machine, without a TEE, with low requests.

    The smallest shape of a configuration file is 2 cpus and 8 GB. Overcommit lets two of them fit
    on a laptop with two cores; the limits stay those of the file.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": "Host",
        "metadata": {"name": HOST},
        "spec": {
            "tee": "None",
            "networkIsolation": "Container",
            "default": True,
            "cpuType": "this machine",
            "overcommit": {"cpuPercent": 5, "memoryPercent": 2},
        },
    }


def organization() -> dict[str, Any]:
    """Return the Organization as docs/install.md has it."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Organization",
        "metadata": {"name": ORGANIZATION},
        "spec": {
            "namespace": NAMESPACE,
            "members": [{"user": USER, "role": "Admin"}],
            "billing": {"containerSubscription": True},
        },
    }


def container(name: str, *, repo: str, tag: str, **variables: str) -> dict[str, Any]:
    """Return a Container as a user of kubectl writes it."""
    values = [{"name": key, "value": value} for key, value in variables.items()]
    return {
        "apiVersion": API_VERSION,
        "kind": "Container",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"repo": repo, "tag": tag, **({"variables": values} if values else {})},
    }
