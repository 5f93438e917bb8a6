"""The API server dies at each write of each call: nothing half-done is ever to be seen.

For every operation that changes the cluster and every write that it makes, the server dies there:
the write is refused, or is lost on its way, or is done and its answer lost, and nothing is answered
until the caller has its error. Then a reader sees what was there before or the whole, and the same
call sent again does it, with nothing left over but what the operator deletes.
"""

import pytest

from tests.support.clients.openapi_check import described
from tests.support.faults.fault_kinds import Loss, ServerDeath
from tests.support.faults.faulty_proxy import FaultyProxy
from tests.support.faults.interrupted_calls import InterruptedCall
from tests.support.faults.mutations import CALLS, ELSEWHERE, Sent
from tests.support.programs.facade import Facade, FacadeInstallation

DEATHS = ("", Loss.ANSWER)
"""How the server dies at each write: refusing it, or having done it."""


async def dies(trial: InterruptedCall, at: int, loss: str) -> None:
    """Make the call with the server's death at a write, and then again."""
    name = f"{trial.stem}-{at}{loss[:1] or 'x'}"
    sent = await trial.call.prepare(trial.world, trial.client, name)
    before = await trial.state(name)
    await refused(trial, sent, at, loss)
    await trial.check_completion(sent, name, before)


async def refused(trial: InterruptedCall, sent: Sent, at: int, loss: str) -> None:
    """Make the call while the server dies: the caller gets an error that asks for a retry."""
    fault = ServerDeath(at, loss, trial.writes)
    trial.proxy.faults = (fault,)
    answer = await sent.by(trial.client)
    trial.proxy.faults = ()
    if not fault.dead:
        # The garbage collector was faster than the last write of a delete.
        assert answer.status_code == 204, f"there was no write {at}: {fault.writes}"
        return
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["code"] == "UNAVAILABLE"
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


def test_every_operation_that_changes_something_is_named() -> None:
    methods = {"post", "put", "patch", "delete"}
    found = {
        operation["operationId"]
        for item in described()["paths"].values()
        for method, operation in item.items()
        if method in methods
    }
    assert CALLS.keys() | ELSEWHERE.keys() == found
    assert not CALLS.keys() & ELSEWHERE.keys()


@pytest.mark.spec("20.21")
@pytest.mark.parametrize("operation", CALLS)
async def test_the_death_of_the_server_leaves_all_or_nothing(
    operation: str, proxy: FaultyProxy, proxied: Facade, entitled_world: FacadeInstallation
) -> None:
    async with proxied.client(entitled_world.key) as client:
        trial = InterruptedCall(operation, proxy, entitled_world, client)
        writes = await trial.run_uninterrupted()
        assert writes
        if operation in {"create_container", "create_secret", "put_credentials"}:
            await dies(trial, 1, Loss.REQUEST)
        for at in range(1, len(writes) + 1):
            for loss in DEATHS:
                await dies(trial, at, loss)
