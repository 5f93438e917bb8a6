"""The dashboard is killed after each write of each form: nothing half-done stays.

The process ends as by kill -9 when the server has done a write and before the process has learned
of it. A reader of the API then sees what was there before or the whole, and the same form sent
again, to the next process, does it.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typing_extensions import override

from tests.support.cluster.clusters import unique
from tests.support.faults.faulty_proxy import FaultyProxy
from tests.support.faults.interrupted_calls import (
    InterruptedCall,
    Successors,
    entitled_world,
    proxied_settings,
    proxy,
)
from tests.support.faults.mutations import CALLS, Call, Sent
from tests.support.ports import free_port
from tests.support.programs.dashboard import Dashboard, Person
from tests.support.programs.facade import ADMIN, FacadeInstallation

__all__ = ["entitled_world", "proxied_settings", "proxy"]

Fields = Mapping[str, str]


def typed(body: Any) -> Fields:
    """Return the fields that mean the same as the body of a call."""
    return body or {}


def tagged(_: Any) -> Fields:
    """Return the fields of a relaunch."""
    return {"tag": "v1.1.0"}


def staging(_: Any) -> Fields:
    """Return the fields of a deployment whose updates wait."""
    return {"staging": "on"}


FORMS: dict[str, Callable[[Any], Fields]] = {
    "accept_update": typed,
    "change_deployment": staging,
    "create_container": typed,
    "create_domain": typed,
    "create_secret": typed,
    "create_ssh_key": typed,
    "put_credentials": typed,
    "relaunch_container": tagged,
    "stop_container": typed,
    "update_secret": typed,
}
"""Operations that have a form which writes to the cluster, and the fields of a call's body."""
PAGES = {
    "create_container": "/containers/new",
    "update_secret": "/secrets/{id}/update",
    "put_credentials": "/registries/ghcr",
}
"""Pages that are named otherwise than the path of the call."""


@dataclass(frozen=True)
class FilledForm(Sent):
    """A form that says what a call says."""

    person: Person | None = None
    """Who sends it."""

    @override
    async def by(self, client: httpx.AsyncClient) -> httpx.Response:
        """Send it; the client of the API has no part in this."""
        assert self.person is not None
        return await self.person.fill(self.path, **self.body)


def as_form(operation: str, person: Person) -> Call:
    """Return an operation of the API as somebody does it in the dashboard."""
    call = CALLS[operation]

    async def prepare(world: FacadeInstallation, client: httpx.AsyncClient, name: str) -> Sent:
        sent = await call.prepare(world, client, name)
        place = PAGES.get(operation, sent.path.removeprefix("/api").replace("/update/", "/"))
        if "{id}" in place:
            place = place.format(id=(await client.get(sent.path)).json()["id"])
        path = f"/o/{world.organization}{place}"
        fields = {**FORMS[operation](sent.body), "retry": f"form-{name}"}
        return FilledForm("POST", path, fields, person=person)

    return replace(call, prepare=prepare)


@pytest.fixture(scope="module")
def dashboard_line(proxied_settings: Path) -> Iterator[tuple[Dashboard, Successors]]:
    """Provide a dashboard that reaches the API server by the proxy, and those that follow it."""
    path = proxied_settings.with_name(f"{unique('shaken')}.yml")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    settings = yaml.safe_load(proxied_settings.read_text())
    settings["dashboard"] = {"address": address, "listen": {"port": port}}
    path.write_text(yaml.safe_dump(settings))
    with contextlib.ExitStack() as stack:
        line = Successors(stack, path)
        yield Dashboard(line.serving, address, path), line


@pytest.mark.nightly
@pytest.mark.parametrize("operation", FORMS)
async def test_the_death_of_the_dashboard_leaves_all_or_nothing(
    operation: str,
    proxy: FaultyProxy,
    dashboard_line: tuple[Dashboard, Successors],
    entitled_world: FacadeInstallation,
) -> None:
    dashboard, line = dashboard_line
    async with contextlib.AsyncExitStack() as stack:
        person = await stack.enter_async_context(dashboard.signed_in(ADMIN))

        async def client_of_the_next() -> httpx.AsyncClient:
            client = await stack.enter_async_context(line.serving.client(entitled_world.key))
            await entitled_world.await_cached_by(line.serving)
            await person.shows(f"/o/{entitled_world.organization}/registries", "Docker Hub")
            return client

        client = await client_of_the_next()
        call = as_form(operation, person)
        trial = InterruptedCall(operation, proxy, entitled_world, client, call)
        trial.stem = f"form-{trial.stem}"
        count = len(await trial.run_uninterrupted())
        assert count
        for at in range(1, count + 1):
            name = f"{trial.stem}-{at}"
            sent = await call.prepare(entitled_world, trial.client, name)
            before = await trial.state(name)
            await trial.kill_after(line.serving, sent, at)
            line.start()
            trial.client = await client_of_the_next()
            await trial.check_completion(sent, name, before)
