"""Dashboards at which an OpenID provider signs people in."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloister_api.sessions.provider.settings import CALLBACK
from tests.support.ports import free_port
from tests.support.programs.dashboard import Dashboard
from tests.support.programs.facade import FacadeInstallation, start_facade
from tests.support.servers.openid import CLIENT, SECRET, OpenIdProvider, openid_provider
from tests.support.stand_ins import openid as stand_in
from tests.support.stand_ins.openid import OpenIdStandIn, openid_stand_in

__all__ = ["NAME", "ForgedSignIns", "RealSignIns", "forged_sign_ins", "real_sign_ins"]

NAME = "Acme SSO"
"""Name of the provider."""


@dataclass
class RealSignIns:
    """A dashboard and a certified provider."""

    dashboard: Dashboard
    """The dashboard."""
    provider: OpenIdProvider
    """The provider."""

    async def until_cached(self, world: FacadeInstallation) -> None:
        """Wait until the dashboard has cached what was created for a test."""
        await self.dashboard.until_cached(world)


@dataclass
class ForgedSignIns:
    """A dashboard and a provider that forges."""

    dashboard: Dashboard
    """The dashboard."""
    provider: OpenIdStandIn
    """The provider."""

    async def until_cached(self, world: FacadeInstallation) -> None:
        """Wait until the dashboard has cached what was created for a test."""
        await self.dashboard.until_cached(world)


@contextlib.contextmanager
def running(
    facade_settings: Path, folder: Path, port: int, oidc: dict[str, Any], secret: str
) -> Iterator[Dashboard]:
    """Run a facade with the same ledger as others, and a dashboard with a provider."""
    settings = yaml.safe_load(facade_settings.read_text())
    address = f"http://127.0.0.1:{port}"
    (folder / "secret").write_text(f"{secret}\n")
    given = {"name": NAME, "clientSecretFile": str(folder / "secret"), **oidc}
    settings["dashboard"] = {"address": address, "listen": {"port": port}, "oidc": given}
    path = facade_settings.parent / f"{folder.name}.yml"
    path.write_text(yaml.safe_dump(settings))
    with start_facade(path) as facade:
        yield Dashboard(facade, address, path)


@pytest.fixture(scope="session")
def real_sign_ins(
    facade_settings: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealSignIns]:
    """Provide a dashboard at which a certified provider signs people in."""
    folder, port = tmp_path_factory.mktemp("openid"), free_port()
    people = {"ada": ("ada@example.test", True), "eve": ("ada@example.test", False)}
    with openid_provider(folder, f"http://127.0.0.1:{port}{CALLBACK}", people) as provider:
        oidc = {"issuer": provider.issuer, "clientId": CLIENT}
        with running(facade_settings, folder, port, oidc, SECRET) as dashboard:
            yield RealSignIns(dashboard, provider)


@pytest.fixture(scope="session")
def forged_sign_ins(
    facade_settings: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ForgedSignIns]:
    """Provide a dashboard whose provider says what a test wants."""
    folder, port = tmp_path_factory.mktemp("forged"), free_port()
    with openid_stand_in() as provider:
        oidc = {"issuer": provider.issuer, "clientId": stand_in.CLIENT}
        with running(facade_settings, folder, port, oidc, stand_in.SECRET) as dashboard:
            yield ForgedSignIns(dashboard, provider)
