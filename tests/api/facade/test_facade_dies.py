"""The facade is killed after each write of each call: nothing half-done stays.

For every call that makes or changes something and every write that it makes, the facade ends as by
kill -9 when the server has done that write and before the facade has learned of it. Another one is
started, as Kubernetes does. A reader then sees what was there before or the whole, and the same
call sent again does it, with nothing left over but what the operator deletes.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.faults.fault_kinds import ApiRequest, CrashPoints
from tests.support.faults.faulty_proxy import FaultyProxy
from tests.support.faults.interrupted_calls import InterruptedCall, await_entitlements
from tests.support.faults.mutations import CALLS, Sent
from tests.support.programs.facade import Facade, FacadeInstallation, start_facade
from tests.support.waiting import until

WHOLE = "the facade"
"""The one that crashes, for the fault."""
MAKE_OR_CHANGE = sorted(each for each in CALLS if not each.startswith("delete"))


class Line:
    """Facades on the same settings, one after the death of the other."""

    def __init__(self, stack: contextlib.ExitStack, settings: Path) -> None:
        self._stack, self._settings = stack, settings
        self.serving = self.start()

    def start(self) -> Facade:
        """Start the next one."""
        self.serving = self._stack.enter_context(start_facade(self._settings))
        return self.serving


@pytest.fixture(scope="module")
def line(proxied_settings: Path) -> Iterator[Line]:
    with contextlib.ExitStack() as stack:
        yield Line(stack, proxied_settings)


def writes(request: ApiRequest, _: str) -> bool:
    """Return whether a request of the facade changes something."""
    return request.writes


async def kill_after(trial: InterruptedCall, doomed: Facade, sent: Sent, at: int) -> None:
    """Make a call, and kill the facade when the server has done a write of it."""
    fault = CrashPoints({WHOLE: at}, writes)
    trial.proxy.faults = (fault,)
    sending = asyncio.create_task(sent.by(trial.client))

    async def is_cut() -> bool:
        return fault.is_cut(WHOLE) or sending.done()

    try:
        await until(is_cut, every=0.01, what=f"write {at} of {sent.method} {sent.path}")
        doomed.kill()
        with pytest.raises(httpx.TransportError):
            await sending
    finally:
        fault.release()
        trial.proxy.faults = ()


@pytest.mark.parametrize("operation", MAKE_OR_CHANGE)
async def test_the_death_of_the_facade_leaves_all_or_nothing(
    operation: str, proxy: FaultyProxy, line: Line, entitled_world: FacadeInstallation
) -> None:
    async with contextlib.AsyncExitStack() as clients:

        async def client_of(facade: Facade) -> httpx.AsyncClient:
            client = await clients.enter_async_context(facade.client(entitled_world.key))
            await await_entitlements(client)
            return client

        trial = InterruptedCall(operation, proxy, entitled_world, await client_of(line.serving))
        count = len(await trial.run_uninterrupted())
        assert count
        for at in range(1, count + 1):
            name = f"{trial.stem}-{at}"
            sent = await trial.call.prepare(entitled_world, trial.client, name)
            before = await trial.state(name)
            await kill_after(trial, line.serving, sent, at)
            trial.client = await client_of(line.start())
            await trial.check_completion(sent, name, before)
