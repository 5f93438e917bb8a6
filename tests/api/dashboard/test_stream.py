"""Streams of pages: what they say, to whom, and when they end."""

import asyncio
import contextlib
import html
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

from tests.support.programs.dashboard import COOKIE, Dashboard, Person, start_dashboard
from tests.support.programs.dashboard_samples import PUBLIC_KEY
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation
from tests.support.waiting import until

FETCH = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
"""Headers of a request by the script of a page."""

MOST = 12.0
"""Seconds that a stream takes to say something on a busy machine: less than the fifteen after which
it says that it lives, and would notice by itself that somebody is no member any more."""
MOST_STOP = 15
"""Seconds that a process takes to stop: its drain, and some for a busy machine."""


class Stream:
    """An open stream, and the names of its events."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()
        self._lives = False

    async def next(self, within: float = 20.0) -> str:
        """Return the name of the next event; empty = the stream has ended.

        That it lives is returned once: how often a stream repeats it depends on the machine.
        """
        async with asyncio.timeout(within):
            async for line in self._lines:
                name = line.removeprefix("event: ")
                if name != line and not (name == "alive" and self._lives):
                    self._lives = True
                    return name
        return ""


@contextlib.asynccontextmanager
async def opened(person: Person, path: str) -> AsyncIterator[Stream]:
    """Open a stream."""
    headers = {**FETCH, "Cookie": f"{COOKIE}={person.cookie}"}
    async with person.client.stream("GET", path, headers=headers) as response:
        yield Stream(response)


async def test_a_stream_says_that_something_changed_and_no_more(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    where = f"/o/{world.organization}/events"
    async with facade.client(world.key) as client, dashboard.signed_in(ADMIN) as person:
        made = (await client.post("/api/containers", json=world.body("web"))).json()
        one = f"{where}?part=container:{made['id']}"
        async with opened(person, f"{where}?part=containers") as all_of_them:
            assert all_of_them.response.headers["content-type"] == "text/event-stream"
            assert await all_of_them.next() == "alive"
            async with opened(person, one) as stream:
                assert await stream.next() == "alive"
                async with facade.client(other_world.key) as other:
                    await other.post("/api/containers", json=other_world.body("theirs"))
                await client.post("/api/containers", json=world.body("another"))
                assert await all_of_them.next() == "changed"
                await world.report("web", phase="ready", currentTag="v1.0.0")
                assert await stream.next() == "changed"
                assert await all_of_them.next() == "changed"
                await client.delete(f"/api/containers/{made['id']}")
                assert await stream.next() == "changed"


async def test_what_changed_between_a_page_and_its_stream_is_told(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    """The page is made, something changes, and then alone its script opens the stream."""
    path = f"/o/{world.organization}/ssh-keys"
    async with dashboard.signed_in(ADMIN) as person:
        page = await person.get(path)
        made = await person.fill(path, name="ada-laptop", public_key=PUBLIC_KEY)
        assert made.status_code == 303, made.text
        async with opened(person, stream_of(page)) as stream:
            assert await stream.next() == "alive"
            assert await stream.next(within=MOST) == "changed"
            gone = await person.fill(f"{path}/ada-laptop/delete")
            assert gone.status_code == 303, gone.text
            assert await stream.next(within=MOST) == "changed"


def stream_of(page: httpx.Response) -> str:
    """Return the address of the stream of a page."""
    found = re.search(r'data-stream="([^"]+)"', page.text)
    assert found is not None, page.text
    return html.unescape(found[1])


async def test_wrong_parts_and_foreign_organizations_have_no_stream(
    dashboard: Dashboard, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    where = f"/o/{world.organization}/events"
    async with dashboard.signed_in(ADMIN) as person, dashboard.person() as nobody:
        for query in ("", "?part=everything", "?part=container:..", "?part=containers&part=x"):
            refused = await person.get(where + query)
            assert refused.status_code == 400, query
            assert "part: name one to" in refused.text
        assert (await nobody.get(f"{where}?part=containers")).headers["location"] == "/session"
    async with dashboard.signed_in("nobody@example.test") as person:
        found = await person.get(f"/o/{other_world.organization}/events?part=containers")
        assert found.status_code == 404


async def test_whoever_is_removed_loses_the_stream_at_once(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    user = "leaver@example.test"
    people = [{"user": ADMIN, "role": "Admin"}, {"user": user, "role": "Member"}]
    await world.change_organization(members=people)
    path = f"/o/{world.organization}/events?part=containers"
    async with dashboard.signed_in(user) as person:
        await person.shows(f"/o/{world.organization}/containers", "Run your first container")
        async with opened(person, path) as stream:
            assert await stream.next() == "alive"
            await world.change_organization(members=people[:1])
            assert await stream.next(within=MOST) == "ended"
            assert not await stream.next(within=MOST)


async def test_a_session_that_is_ended_loses_its_streams(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    path = f"/o/{world.organization}/events?part=containers"
    async with dashboard.signed_in(ADMIN) as person, opened(person, path) as stream:
        assert await stream.next() == "alive"
        await person.post("/session/end")
        # The organization may have changed a moment before.
        while (said := await stream.next(within=MOST)) == "changed":
            pass
        assert said == "ended"


async def test_two_replicas_tell_of_each_others_writes_and_of_ended_sessions(
    dashboard: Dashboard, dashboard_settings: Path, world: FacadeInstallation
) -> None:
    path = f"/o/{world.organization}/events?part=ssh-keys"
    with start_dashboard(dashboard_settings) as second:
        async with dashboard.signed_in(ADMIN) as one, second.person() as two:
            two.cookie = one.cookie
            await two.shows(f"/o/{world.organization}/ssh-keys", "New SSH key")
            async with opened(two, path) as stream:
                assert await stream.next() == "alive"
                form = f"/o/{world.organization}/ssh-keys"
                made = await one.fill(form, name="ada-laptop", public_key=PUBLIC_KEY)
                assert made.status_code == 303, made.text
                assert await stream.next(within=MOST) == "changed"
                assert "ada-laptop" in (await two.get(form)).text
                assert (await one.post("/session/end")).status_code == 303
                assert "/session?next=" in (await two.get(form)).headers["location"]
                assert await stream.next(within=MOST) == "ended"


async def test_a_session_has_six_streams_at_most(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    path = f"/o/{world.organization}/events?part=containers"
    async with dashboard.signed_in(ADMIN) as person, contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(opened(person, path)) for _ in range(6)]
        for each in streams:
            assert await each.next() == "alive"
        async with opened(person, path) as one_more:
            assert one_more.response.status_code == 503
            assert one_more.response.headers["retry-after"] == "30"
        await streams[0].response.aclose()

        async def is_free() -> bool:
            async with opened(person, path) as again:
                return again.response.status_code == 200

        await until(is_free, what="the place of the stream that was closed")


async def test_a_page_that_keeps_itself_current_does_not_use_the_session(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    path = f"/o/{world.organization}/containers"
    async with dashboard.signed_in(ADMIN) as person:
        page = await person.get(path)
        assert f'data-stream="/o/{world.organization}/events?part=containers' in page.text
        assert (await person.get(path, **FETCH)).status_code == 200
        refused = await person.fill(f"{path}/new", name="", repo="", tag="")
        assert refused.status_code == 400
        assert "data-stream" not in refused.text, "it could not fetch itself from there"


async def test_a_process_that_is_stopped_ends_its_streams(
    dashboard_settings: Path, world: FacadeInstallation
) -> None:
    where = f"/o/{world.organization}/events?part=containers"
    stop = {"drainSeconds": 1, "requestSeconds": 30}
    with start_dashboard(dashboard_settings, stop=stop) as other:
        async with (
            other.signed_in(ADMIN) as person,
            opened(person, where) as stream,
            opened(person, where) as second,
        ):
            assert await stream.next() == await second.next() == "alive"
            begun = time.monotonic()
            assert await asyncio.to_thread(other.facade.stop) == 0
            assert time.monotonic() - begun < MOST_STOP, "streams hold nobody up"
            assert not await stream.next()
