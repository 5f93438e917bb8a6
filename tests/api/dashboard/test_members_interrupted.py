"""Members are changed by two replicas, by one that dies in the middle, and by a refused one."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml
from typing_extensions import override

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Organization
from dev.cluster import Cluster
from tests.support.cluster.accounts import account_user
from tests.support.faults.fault_kinds import (
    PASS,
    ApiRequest,
    CrashPoints,
    Fault,
    HeldEvents,
    HeldWrites,
    Injection,
)
from tests.support.faults.faulty_proxy import FaultyProxy, faulty_proxy
from tests.support.ports import free_port
from tests.support.programs.dashboard import Dashboard
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation, start_facade
from tests.support.waiting import until

BOB = "bob@example.test"
DOOMED = "the other replica"


@pytest.fixture(scope="module")
def proxy(api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyProxy]:
    """Provide a proxy in front of the API server."""
    with faulty_proxy(api_cluster.kubeconfig, tmp_path_factory.mktemp("faulty")) as running:
        running.user = account_user("api")
        yield running


@pytest.fixture
def second(dashboard_settings: Path, proxy: FaultyProxy) -> Iterator[Dashboard]:
    """Provide another replica, which reaches the API server by the proxy."""
    settings = yaml.safe_load(dashboard_settings.read_text())
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    settings["dashboard"] |= {"address": address, "listen": {"port": port}}
    settings["kubeconfig"] = str(proxy.open_port(DOOMED).kubeconfig)
    path = dashboard_settings.parent / f"dashboard-{port}.yml"
    path.write_text(yaml.safe_dump(settings))
    with start_facade(path) as running:
        yield Dashboard(running, address, path)
    proxy.faults = ()


def is_patch(request: ApiRequest) -> bool:
    """Return whether a request patches an Organization."""
    return request.kind == "organizations" and request.verb == "patch"


@dataclass
class Refusals(Fault):
    """Refuse the first patches of Organizations."""

    injection: Injection
    """How."""
    left: int
    """How many more."""

    @override
    def inject(self, request: ApiRequest) -> Injection:
        """Refuse a patch."""
        if not is_patch(request) or not self.left:
            return PASS
        self.left -= 1
        return self.injection


async def roles(world: FacadeInstallation) -> dict[str, str]:
    """Return roles by user, as the server has them."""
    found = await world.kube.get(of(Organization), world.organization)
    return {each["user"]: each["role"] for each in found["spec"]["members"]}


async def both_are_admin(world: FacadeInstallation) -> str:
    """Make bob an administrator, and return the value of his admin key."""
    users = [{"user": user, "role": "Admin"} for user in (ADMIN, BOB)]
    await world.change_organization(members=users)
    return await world.new_key(user=BOB)


async def test_what_one_replica_changed_the_other_shows(
    dashboard: Dashboard, second: Dashboard, world: FacadeInstallation
) -> None:
    await both_are_admin(world)
    path = f"/o/{world.organization}/members"
    async with dashboard.signed_in(ADMIN) as one, second.person() as two:
        two.cookie = one.cookie
        await one.shows(path, BOB)
        await two.shows(path, BOB)
        for sender, reader, user in ((one, two, "a@example.test"), (two, one, "b@example.test")):
            done = await sender.fill(path, name=user, role="Member")
            assert done.status_code == 303, done.text
            await reader.shows(done.headers["location"], user)


async def test_two_that_remove_each_other_leave_an_administrator(
    dashboard: Dashboard, second: Dashboard, proxy: FaultyProxy, world: FacadeInstallation
) -> None:
    """The second one has decided before the first one is done, and sends its patch after it."""
    await both_are_admin(world)
    path = f"/o/{world.organization}/members"
    async with dashboard.signed_in(ADMIN) as ada, second.signed_in(BOB) as bob:
        await ada.shows(path, "Add member")
        await bob.shows(path, "Add member")
        held = HeldWrites(None, is_patch)
        proxy.faults = (held,)
        sending = asyncio.create_task(bob.fill(f"{path}/remove", name=ADMIN))

        async def decided() -> bool:
            return bool(held.caught)

        await until(decided, every=0.01, what="the patch of the second one")
        assert (await ada.fill(f"{path}/remove", name=BOB)).status_code == 303
        held.release()
        assert (await sending).status_code in {403, 404}, "not a member any more"
    assert await roles(world) == {ADMIN: "Admin"}


async def test_a_copy_that_lags_decides_nothing(
    dashboard: Dashboard, second: Dashboard, proxy: FaultyProxy, world: FacadeInstallation
) -> None:
    """The replica still has the administrator in memory who is none any more."""
    await both_are_admin(world)
    path = f"/o/{world.organization}/members"
    async with dashboard.signed_in(BOB) as bob, second.person() as lagging:
        lagging.cookie = bob.cookie
        await lagging.shows(path, "Add member")
        held = HeldEvents(lambda request: request.kind == "organizations")
        proxy.faults = (held,)
        await world.change_organization(members=[{"user": ADMIN, "role": "Admin"}])
        assert "Add member" in (await lagging.get(path)).text, "it lags"
        refused = await lagging.fill(path, name="eve@example.test", role="Admin")
        assert refused.status_code == 403
        assert "not an administrator of this organization any more" in refused.text
        held.release()
    assert await roles(world) == {ADMIN: "Admin"}


@pytest.mark.nightly
async def test_a_replica_that_dies_has_done_all_or_nothing(
    facade: Facade,
    dashboard: Dashboard,
    second: Dashboard,
    proxy: FaultyProxy,
    world: FacadeInstallation,
) -> None:
    value = await both_are_admin(world)
    path = f"/o/{world.organization}/members"

    async with dashboard.signed_in(ADMIN) as one, second.person() as two:
        two.cookie = one.cookie
        await two.shows(path, BOB)
        fault = CrashPoints({DOOMED: 1}, lambda request, _: is_patch(request))
        proxy.faults = (fault,)
        sending = asyncio.create_task(two.fill(f"{path}/remove", name=BOB))

        async def is_cut() -> bool:
            return fault.is_cut(DOOMED) or sending.done()

        await until(is_cut, every=0.01, what="the patch of the Organization")
        second.facade.kill()
        with pytest.raises(httpx.TransportError):
            await sending
        fault.release()
        assert await roles(world) == {ADMIN: "Admin"}, "one patch does it"

        async def ended() -> bool:
            return await world.is_revoked(value)

        await until(ended, what="the end of the admin key, by the replica that is left")
        again = await one.fill(f"{path}/remove", name=BOB)
        assert again.status_code == 303, "the same form again"
        async with facade.client(value) as client:

            async def refused() -> bool:
                return (await client.get("/api/session")).status_code == 403

            await until(refused, what="the refusal of the key")


@pytest.mark.parametrize(
    ("status", "reason", "times", "code", "words"),
    [
        (409, "Conflict", 3, 303, ""),
        (409, "Conflict", 100, 409, "being changed by others; try again"),
        # As before the roles of this version were applied.
        (403, "Forbidden", 1, 503, "to whom `cloister doctor` says what is missing"),
    ],
)
async def test_what_the_cluster_refuses_is_decided_again_or_said(
    second: Dashboard,
    proxy: FaultyProxy,
    world: FacadeInstallation,
    status: int,
    reason: str,
    times: int,
    code: int,
    words: str,
) -> None:
    await both_are_admin(world)
    path = f"/o/{world.organization}/members"
    async with second.signed_in(ADMIN) as ada:
        await ada.shows(path, BOB)
        proxy.faults = (Refusals(Injection(status=status, reason=reason), times),)
        answer = await ada.fill(f"{path}/role", name=BOB, role="Member")
        assert answer.status_code == code, answer.text
        assert words in answer.text
    assert await roles(world) == {ADMIN: "Admin", BOB: "Member" if code == 303 else "Admin"}
