"""Enclaves request collateral at a rate of their own."""

from collections.abc import AsyncIterator

import pytest

from cloister_api.errors import ApiError
from cloister_api.services.enclaves import EnclaveCollateral
from tests.support.programs.collateral_world import (
    LISTED,
    TCB,
    CollateralWorld,
    collateral_world,
)


@pytest.fixture
async def world() -> AsyncIterator[CollateralWorld]:
    async with collateral_world() as made:
        yield made


@pytest.mark.spec("26.4")
async def test_each_enclave_has_a_rate_of_its_own(world: CollateralWorld) -> None:
    time = 1000.0
    service = EnclaveCollateral(world.cache, 4, lambda: time)

    async def refusal(uid: str, address: str) -> ApiError:
        with pytest.raises(ApiError) as caught:
            await service.get(uid, address)
        return caught.value

    for _ in range(3):
        await service.get("a", LISTED)
    assert (await refusal("a", "https://example.com/")).status == 400, "which counts too"
    error = await refusal("a", TCB)
    assert (error.status, error.code, error.retry_after) == (429, "RATE_LIMITED", 900)
    assert "collateral.requestsPerHour" in str(error)
    assert len(world.makers.requests) == 1, "what is refused asks nobody"
    await service.get("b", TCB)
    time += 899
    assert (await refusal("a", TCB)).retry_after == 1
    time += 1
    await service.get("a", TCB)
    assert (await refusal("a", TCB)).retry_after == 900
    time += 10 * 3600
    for _ in range(4):
        await service.get("a", TCB)
    assert (await refusal("a", TCB)).status == 429, "a pause saves an hour's requests at most"
