"""A facade beside an operator, over an installation's repositories and cluster."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml

from dev.plain_http import NO_TRUST
from tests.support.programs.facade import ADMIN, run_command, start_facade
from tests.support.programs.operator import Installation

__all__ = ["facade_of"]


@contextlib.contextmanager
def facade_of(
    installation: Installation, settings: Mapping[str, Any] | None = None, **entitlements: Any
) -> Iterator[httpx.Client]:
    """Run a facade for the organization, and yield a client with an admin key.

    Parameters
    ----------
    entitlements
        Entitlements of the organization in addition to the choice of a Host.
    """
    spec = {
        "members": [{"user": ADMIN, "role": "Admin"}],
        "entitlements": {"hostSelection": True, **entitlements},
    }
    name = f"organizations.cloister.dev/{installation.slug}"
    installation.kubectl("patch", name, "--type=merge", "-p", json.dumps({"spec": spec}))
    config = _settings(installation, settings or {})
    key = run_command(
        *("admin-key", "create", "--organization", installation.slug, "--user", ADMIN),
        *("--name", "test", "--config", str(config)),
    ).stdout.strip()
    headers = {"Authorization": f"Bearer {key}"}
    with (
        start_facade(config) as facade,
        httpx.Client(
            base_url=facade.base,
            headers=headers,
            timeout=60,
            trust_env=False,
            verify=NO_TRUST,
            # Below the facade's keep-alive timeout of five seconds.
            limits=httpx.Limits(keepalive_expiry=1),
        ) as client,
    ):
        yield client


def _settings(installation: Installation, more: Mapping[str, Any]) -> Path:
    """Write the settings of the facade next to those of the operator."""
    registry = installation.cluster.registry
    of_cluster = {"allowPrivate": [registry], "plainHttp": [registry]}
    settings = {
        "operatorNamespace": installation.system,
        "kubeconfig": str(installation.kubeconfig("api")),
        "listen": {"port": 0},
        "ledger": {"path": "ledger.db", "keyMaterial": "keys.json"},
        "sources": {"kind": "git", "base": str(installation.repositories.path)},
        "registry": {
            name: value
            for name, value in installation.settings.get("registry", of_cluster).items()
            # The facade has it from the operator.
            if name != "maxImageBytes"
        },
        **more,
    }
    path = installation.folder / "api.yml"
    path.write_text(yaml.safe_dump(settings))
    run_command("admin-key", "init", "--config", str(path))
    return path
