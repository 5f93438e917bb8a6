"""Two replicas of the dashboard, and one that is killed in the middle of a create."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Deployment
from tests.support.ports import free_port
from tests.support.programs.dashboard import Dashboard, Person
from tests.support.programs.facade import ADMIN, FacadeInstallation, start_facade
from tests.support.waiting import until


@pytest.fixture
def second(dashboard_settings: Path) -> Iterator[Dashboard]:
    """Provide another replica: the same ledger, at another address."""
    settings = yaml.safe_load(dashboard_settings.read_text())
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    settings["dashboard"] |= {"address": address, "listen": {"port": port}}
    path = dashboard_settings.parent / f"dashboard-{port}.yml"
    path.write_text(yaml.safe_dump(settings))
    with start_facade(path) as running:
        yield Dashboard(running, address, path)


async def opened(person: Person, path: str) -> None:
    """Wait until a page is there."""

    async def there() -> bool:
        return (await person.get(path)).status_code == 200

    await until(there, what=path)


async def test_a_session_begins_and_ends_in_both(dashboard: Dashboard, second: Dashboard) -> None:
    async with dashboard.signed_in(ADMIN) as one, second.person() as two:
        two.cookie = one.cookie
        assert (await two.get("/organizations?all")).status_code == 200
        assert (await two.post("/session/end")).status_code == 303
        assert (await one.get("/organizations?all")).headers["location"] == "/session"
        link = dashboard.link(ADMIN)
        answers = await asyncio.gather(one.post(link), two.post(link))
        assert sorted(each.status_code for each in answers) == [303, 403], "one of them was first"


async def test_a_create_is_completed_by_the_other_replica(
    dashboard: Dashboard, second: Dashboard, world: FacadeInstallation
) -> None:
    path = f"/o/{world.organization}/containers/new"
    fields = {"name": "web", "repo": world.repo, "tag": "v1.0.0", "retry": "the-same-form"}
    async with dashboard.signed_in(ADMIN) as one, second.person() as two:
        two.cookie = one.cookie
        await opened(two, path)
        await opened(one, path)
        sending = asyncio.create_task(two.fill(path, **fields))

        async def begun() -> bool:
            made = await world.kube.list(of(Deployment), world.namespace)
            return bool(made.items) or sending.done()

        await until(begun, every=0.005, what="the first write")
        second.facade.kill()
        with contextlib.suppress(httpx.TransportError):
            await sending
        again = await one.fill(path, **fields)
        # Killed after its answer was on the way: the name is then taken, by the container itself.
        assert again.status_code in {303, 409}, again.text
    (container,) = await world.containers()
    assert container["spec"]["tag"] == "v1.0.0"
