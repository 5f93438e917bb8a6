"""The cache of what makers of processors publish, against fakes of their services over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import pytest
from pydantic import ValidationError

from cloister_api import collateral as caching
from cloister_api.collateral import CollateralSettings, UnusableAnswer, piece_of, times_of
from cloister_api.errors import ApiError
from tests.support.programs.collateral_world import (
    AMD,
    DATED_ADDRESSES,
    INTEL,
    LISTED,
    TCB,
    CollateralWorld,
    collateral_world,
)
from tests.support.programs.collateral_world import (
    COLLATERAL_ADDRESSES as ALL,
)
from tests.support.programs.maker_services import CHIP, LEVELS

CERTIFICATE = f"{AMD}/vcek/v1/Milan/{CHIP}?{LEVELS}"


@pytest.fixture
async def world() -> AsyncIterator[CollateralWorld]:
    async with collateral_world() as made:
        yield made


@pytest.mark.parametrize("address", ALL)
async def test_an_answer_is_the_makers_byte_for_byte(world: CollateralWorld, address: str) -> None:
    answer = await world.cache.get(address)
    path = "/" + address.split("/", 3)[3]
    assert world.makers.requests == [path]
    assert await world.cache.get(address) is answer
    assert len(world.makers.requests) == 1, "the second one is from memory"
    named = {"issuer-chain" in each for each in answer.headers}
    assert named == ({True} if "intel" in address and "Root" not in address else set())
    assert answer.valid_until == world.now + world.makers.life


@pytest.mark.spec("26.4")
@pytest.mark.parametrize(
    "address",
    [
        "",
        "https://example.com/vcek/v1/Milan/crl",
        f"{AMD}.example.com/vcek/v1/Milan/crl",
        f"{AMD}@example.com/vcek/v1/Milan/crl",
        "http://kdsintf.amd.com/vcek/v1/Milan/crl",
        f"{AMD}/vcek/v1/../../admin/crl",
        f"{AMD}/vcek/v1/Milan/crl?x=1",
        f"{AMD}/vcek/v1/Milan/crl\n",
        f"{AMD}/vcek/v1/Milan/{CHIP}",
        f"{AMD}/vlek/v1/Milan/{CHIP}?{LEVELS}",
        f"{INTEL}/tdx/certification/v4/tcb?fmspc=50806F00000",
        f"{INTEL}/sgx/certification/v4/pckcert?encrypted_ppid=00",
    ],
)
async def test_no_other_address_is_fetched(world: CollateralWorld, address: str) -> None:
    error = await world.refusal(address)
    assert error.status == 400
    assert world.makers.requests == []


async def test_it_is_fetched_again_before_it_ends(world: CollateralWorld) -> None:
    world.makers.life = timedelta(hours=10)
    await world.cache.get(LISTED)
    world.now += timedelta(hours=4)
    await world.cache.get(LISTED)
    assert len(world.makers.requests) == 1
    world.now += timedelta(hours=2)
    world.makers.now = world.now
    assert (await world.cache.get(LISTED)).fetched_at == world.now
    world.makers.life = timedelta(days=300)
    world.now += timedelta(hours=6)
    world.makers.now = world.now
    await world.cache.get(LISTED)
    world.now += timedelta(days=1)
    await world.cache.get(LISTED)
    assert len(world.makers.requests) == 4, "after a day at the latest"


@pytest.mark.parametrize("trouble", ["status", "garbage", "chain", "expired"])
async def test_while_a_maker_is_away_what_is_valid_is_kept(
    world: CollateralWorld, trouble: str
) -> None:
    first = await world.cache.get(TCB)
    world.now += timedelta(days=20)
    world.makers.status = 503 if trouble == "status" else 200
    world.makers.garbage = trouble == "garbage"
    world.makers.without_chain = trouble == "chain"
    if trouble != "expired":
        world.makers.now = world.now
    else:
        world.makers.life = timedelta(days=1)
    assert await world.cache.get(TCB) is first
    assert await world.cache.get(TCB) is first
    assert len(world.makers.requests) == 2, "a minute's rest after a failure"
    world.now += timedelta(days=11)
    error = await world.refusal(TCB)
    assert (error.status, error.retry_after) == (503, 60)
    assert "settings collateral" in str(error)


async def test_what_was_never_there_is_unavailable_with_the_reason(world: CollateralWorld) -> None:
    world.makers.status = 429
    assert "it answered 429" in str(await world.refusal(LISTED))
    assert "it answered 429" in str(await world.refusal(LISTED))
    assert len(world.makers.requests) == 1
    world.now += timedelta(minutes=1)
    world.makers.status = 200
    await world.cache.get(LISTED)


async def test_one_request_serves_all_who_wait(world: CollateralWorld) -> None:
    answers = await asyncio.gather(*(world.cache.get(LISTED) for _ in range(20)))
    assert len(set(map(id, answers))) == 1
    assert len(world.makers.requests) == 1


@asynccontextmanager
async def dripping() -> AsyncIterator[str]:
    """Serve a body that never ends, a byte at a time, each sooner than a timeout between two."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        try:
            with suppress(ConnectionError):
                while not writer.is_closing():
                    writer.write(b"x")
                    await writer.drain()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(1), 0.05)
        finally:
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_maker_that_never_finishes_is_given_up(world: CollateralWorld) -> None:
    async with dripping() as slow:
        settings = CollateralSettings(amd=slow, timeout_seconds=0.5)
        async with world.replica(settings) as cache, asyncio.timeout(60):
            lines = ("Milan", "Genoa", "Turin", "Bergamo", "Siena")
            asked = (cache.get(f"{AMD}/vcek/v1/{line}/crl") for line in lines)
            for error in await asyncio.gather(*asked, return_exceptions=True):
                assert isinstance(error, ApiError)
                assert "its answer took too long" in str(error)


async def test_a_slow_maker_delays_no_other(world: CollateralWorld) -> None:
    async with dripping() as slow:
        settings = CollateralSettings(amd=slow, intel=world.makers.base, timeout_seconds=60)
        async with world.replica(settings) as cache, asyncio.timeout(60):
            pieces = (f"{AMD}/vcek/v1/Milan/{number:0128x}?{LEVELS}" for number in range(1000))
            asked = [asyncio.create_task(cache.get(each)) for each in pieces]
            await asyncio.sleep(0)  # all of them begin
            await cache.get(TCB)
            assert not any(each.done() for each in asked), "Intel's did not wait for AMD's"
            for each in asked:
                each.cancel()
            await asyncio.gather(*asked, return_exceptions=True)


@pytest.mark.parametrize("address", DATED_ADDRESSES)
async def test_an_older_answer_replaces_no_newer_one_that_is_valid(
    world: CollateralWorld, address: str
) -> None:
    first = await world.cache.get(address)
    world.now += timedelta(days=20)
    world.makers.life = timedelta(days=60)
    world.makers.now = first.issued_at - timedelta(days=1)
    assert await world.cache.get(address) is first
    assert sum(count for (_, outcome), count in world.cache.counts.items() if outcome == "older")
    # What is not valid any more blocks nothing.
    world.now += timedelta(days=11)
    assert (await world.cache.get(address)).issued_at == world.makers.now


async def test_certificates_are_not_ordered(world: CollateralWorld) -> None:
    first = await world.cache.get(CERTIFICATE)
    world.now += timedelta(days=20)
    world.makers.life = timedelta(days=60)
    world.makers.now -= timedelta(days=1)
    assert (await world.cache.get(CERTIFICATE)).body != first.body


async def test_an_answer_from_the_future_is_unusable(world: CollateralWorld) -> None:
    world.makers.now = world.now + timedelta(minutes=11)
    assert "is from the future" in str(await world.refusal(LISTED))


async def test_each_replica_requests_for_itself(world: CollateralWorld) -> None:
    async with world.replica() as other:
        for each in (world.cache, other):
            await asyncio.gather(*(each.get(piece) for piece in ALL for _ in range(5)))
        assert len(world.makers.requests) == 2 * len(ALL)


async def test_the_cache_is_bounded(
    world: CollateralWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caching, "MOST", 2)
    async with world.replica() as cache:
        for address in (*ALL[6:], ALL[6]):
            await cache.get(address)
    assert len(world.makers.requests) == 4


async def test_a_proxy_is_used_where_one_is_set(world: CollateralWorld) -> None:
    base = world.makers.base
    settings = CollateralSettings(amd="http://kds.invalid", proxy=base, intel=base)
    async with world.replica(settings) as cache:
        await cache.get(LISTED)
    assert world.makers.requests == ["http://kds.invalid/vcek/v1/Milan/crl"]


def test_what_says_no_end_is_unusable() -> None:
    for form, body in (("crl", b"x"), ("certificate", b"x"), ("chain", b""), ("tcbInfo", b"{}")):
        with pytest.raises(UnusableAnswer):
            times_of(form, body)
    with pytest.raises(UnusableAnswer):
        times_of("tcbInfo", b'{"tcbInfo": {"nextUpdate": "2026-01-01T00:00:00"}}')


@pytest.mark.parametrize("depth", [5_000, 100_000])
def test_json_that_is_nested_deeply_is_unusable(depth: int) -> None:
    with pytest.raises(UnusableAnswer):
        times_of("tcbInfo", b'{"tcbInfo": ' + b"[" * depth + b"]" * depth + b"}")


def test_a_mirror_may_have_a_path() -> None:
    settings = CollateralSettings(amd="https://mirror.example/amd")
    piece = piece_of(LISTED, settings)
    assert piece is not None
    assert piece.url == "https://mirror.example/amd/vcek/v1/Milan/crl"


@pytest.mark.parametrize(
    "wrong",
    [{"amd": "kdsintf.amd.com"}, {"amd": "https://a.example/"}, {"proxy": "socks5://p"}],
)
def test_addresses_that_are_none_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        CollateralSettings.model_validate(wrong)
