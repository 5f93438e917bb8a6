"""The facade is killed after each write of each call: nothing half-done stays.

For every call that makes or changes something and every write that it makes, the facade ends as by
kill -9 when the server has done that write and before the facade has learned of it. Another one is
started, as Kubernetes does. A reader then sees what was there before or the whole, and the same
call sent again does it, with nothing left over but what the operator deletes.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cloister_api.ledger.audit import BEGUN
from tests.support.faults.faulty_proxy import FaultyProxy
from tests.support.faults.interrupted_calls import InterruptedCall, Successors
from tests.support.faults.mutations import CALLS
from tests.support.programs.facade import Facade, FacadeInstallation

MAKE_OR_CHANGE = sorted(each for each in CALLS if not each.startswith("delete"))


@pytest.fixture(scope="module")
def line(proxied_settings: Path) -> Iterator[Successors]:
    with contextlib.ExitStack() as stack:
        yield Successors(stack, proxied_settings)


@pytest.mark.spec("20.21")
@pytest.mark.parametrize("operation", MAKE_OR_CHANGE)
async def test_the_death_of_the_facade_leaves_all_or_nothing(
    operation: str, proxy: FaultyProxy, line: Successors, entitled_world: FacadeInstallation
) -> None:
    async with contextlib.AsyncExitStack() as clients:

        async def client_of(facade: Facade) -> httpx.AsyncClient:
            client = await clients.enter_async_context(facade.client(entitled_world.key))
            await entitled_world.await_cached_by(facade)
            return client

        trial = InterruptedCall(operation, proxy, entitled_world, await client_of(line.serving))
        count = len(await trial.run_uninterrupted())
        assert count
        for at in range(1, count + 1):
            name = f"{trial.stem}-{at}"
            sent = await trial.call.prepare(entitled_world, trial.client, name)
            before = await trial.state(name)
            await trial.kill_after(line.serving, sent, at)
            # A forge is not of an organization, and its webhooks leave no row.
            if operation != "report_release":
                assert (await entitled_world.audit())[-1].result == BEGUN
            trial.client = await client_of(line.start())
            await trial.check_completion(sent, name, before)
