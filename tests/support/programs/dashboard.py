"""A facade with a dashboard, and people who use it without a script."""

import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.ledger.keys.sessions import SessionMethod, SessionTable
from cloister_api.settings import ApiSettings
from cloister_clients.clock import utc_now
from tests.support.builders.catalog import RECORD
from tests.support.cluster.clusters import unique
from tests.support.ports import free_port
from tests.support.programs.facade import (
    ADMIN,
    LIMITS,
    Facade,
    FacadeInstallation,
    run_command,
    start_facade,
)
from tests.support.waiting import until

__all__ = [
    "COOKIE",
    "Dashboard",
    "Person",
    "dashboard",
    "dashboard_settings",
    "start_dashboard",
]

COOKIE = "__Host-cloister"
"""Name of the cookie."""
SAME_ORIGIN = {
    "Sec-Fetch-Site": "same-origin",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
}
"""Headers of a request that a page of the dashboard makes."""


@dataclass
class Person:
    """Somebody with a browser.

    The cookie is kept by hand: libraries send a secure one over https alone, browsers on the
    loopback too.
    """

    client: httpx.AsyncClient
    """Sends the requests; follows no redirect."""
    cookie: str = field(default="", repr=False)
    """Value of the cookie; empty = there is none."""
    attempt: str = field(default="", repr=False)
    """Value of the cookie that keeps an attempt to sign in; empty = there is none."""

    async def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        data: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send a request as a page of the dashboard does, and keep its cookie."""
        given = {**SAME_ORIGIN, **headers}
        kept = {COOKIE: self.cookie, f"{COOKIE}-signin": self.attempt}
        cookies = "; ".join(f"{name}={value}" for name, value in kept.items() if value)
        if cookies:
            given["Cookie"] = cookies
        response = await self.client.request(method, path, data=data, headers=given)
        for header in response.headers.get_list("set-cookie"):
            found = re.match(rf'{COOKIE}(-signin)?="?([^";]*)', header)
            assert found is not None, header
            if found[1]:
                self.attempt = found[2]
            else:
                self.cookie = found[2]
        return response

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """Open a page."""
        return await self.send("GET", path, headers)

    async def shows(self, path: str, *texts: str) -> httpx.Response:
        """Wait until a page shows all of some texts, and return it."""

        async def shown() -> httpx.Response | None:
            response = await self.get(path)
            there = response.status_code == 200 and all(text in response.text for text in texts)
            return response if there else None

        found = await until(shown, what=f"{', '.join(texts)} at {path}")
        assert found is not None
        return found

    async def post(self, path: str, **headers: str) -> httpx.Response:
        """Send a form without fields."""
        return await self.send("POST", path, headers)

    async def fill(self, path: str, **fields: str) -> httpx.Response:
        """Send a form of a container; without a version any is meant."""
        return await self.send("POST", path, {}, {"version": "", **fields})


@dataclass
class Dashboard:
    """A running dashboard."""

    facade: Facade
    """The process."""
    address: str
    """Its address."""
    settings: Path
    """Its settings."""
    observer: str = field(default="", repr=False)
    """Cookie of a session by which `until_cached` looks; empty = there is none yet."""

    async def until_cached(self, world: FacadeInstallation) -> None:
        """Wait until it has cached what was created for a test.

        The session that looks is older than the organization and leaves no row in its audit trail.
        """
        await self.facade.until_cached(world)
        self.observer = self.observer or await new_session(world)
        async with self.person() as person:
            person.cookie = self.observer
            await person.shows(f"/o/{world.organization}/containers", "Run your first container")

    @contextlib.asynccontextmanager
    async def person(self) -> AsyncIterator[Person]:
        """Provide somebody who is not signed in."""
        async with httpx.AsyncClient(base_url=self.address, timeout=60, limits=LIMITS) as client:
            yield Person(client)

    @contextlib.asynccontextmanager
    async def signed_in(self, user: str) -> AsyncIterator[Person]:
        """Provide somebody who has signed in by a link."""
        async with self.person() as person:
            response = await person.post(self.link(user))
            assert response.status_code == 303, response.text
            yield person

    def link(self, user: str) -> str:
        """Return the path of a new one-time link."""
        done = run_command("session", "link", "--user", user, "--config", str(self.settings))
        printed = done.stdout.strip()
        assert printed.startswith(f"{self.address}/session/once/"), printed
        return printed.removeprefix(self.address)

    def command(self, *arguments: str) -> str:
        """Run a command about sessions, and return what it prints."""
        return run_command("session", *arguments, "--config", str(self.settings)).stdout


async def new_session(world: FacadeInstallation) -> str:
    """Begin a session of the administrator in the ledger alone, and return its cookie."""
    material = KeyMaterial.read(ApiSettings.read(world.settings).ledger.key_material)
    now = utc_now()
    async with world.ledger() as engine:
        _, value = await SessionTable(engine, material).create(
            ADMIN,
            method=SessionMethod.ONCE,
            agent="tests",
            now=now,
            life=timedelta(days=1),
            authenticated_at=now,
        )
    return value


@pytest.fixture(scope="session")
def dashboard_settings(facade_settings: Path) -> Path:
    """Provide settings of a second facade with the same ledger, and a dashboard."""
    settings = yaml.safe_load(facade_settings.read_text())
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    settings["dashboard"] = {"address": address, "listen": {"port": port}}
    catalog = facade_settings.parent / "models.json"
    catalog.write_text(json.dumps([RECORD]))
    settings["catalog"] = catalog.name
    path = facade_settings.parent / "dashboard.yml"
    path.write_text(yaml.safe_dump(settings))
    return path


@pytest.fixture(scope="session")
def dashboard(dashboard_settings: Path) -> Iterator[Dashboard]:
    """Provide a running dashboard."""
    with start_facade(dashboard_settings) as running:
        yield Dashboard(running, dashboard_address(dashboard_settings), dashboard_settings)


@contextlib.contextmanager
def start_dashboard(settings: Path, **more: Any) -> Iterator[Dashboard]:
    """Run a dashboard of its own beside the others, whose settings it shares, until the end."""
    path = settings.parent / f"{unique('dashboard')}.yml"
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    own = {"address": address, "listen": {"port": port}}
    path.write_text(
        yaml.safe_dump({**yaml.safe_load(settings.read_text()), "dashboard": own, **more})
    )
    with start_facade(path) as running:
        yield Dashboard(running, address, path)


def dashboard_address(settings: Path) -> str:
    """Return the address of the dashboard of settings."""
    address: str = yaml.safe_load(settings.read_text())["dashboard"]["address"]
    return address
