"""Bodies that are made to cost much: the parser's time and memory, and the size of the response."""

import contextlib
import time
import tracemalloc

import pytest

from cloister_api.errors import MOST_DETAILS, ApiError
from cloister_api.http.bodies import MAX_BODY
from cloister_api.schemas.forms import Detail
from cloister_api.wire import (
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_SHOWN,
    MAX_VALUES,
    BoundError,
    DepthError,
    parse,
)
from tests.support.builders.hostile_json import hostile_json
from tests.support.programs.routes_only import bare_app, bare_client, reported

MOST_SECONDS = 0.5
"""CPU time of one body; the slowest takes a twentieth, and a quadratic one took minutes."""
MOST_MEMORY = 32 * MAX_BODY
"""Memory of one body while it is parsed; the largest takes a fourth."""
BODIES = hostile_json(MAX_BODY)


@pytest.mark.attack("costly-body")
@pytest.mark.parametrize("name", BODIES)
def test_the_largest_body_of_any_shape_is_parsed_or_refused_within_bounds(name: str) -> None:
    tracemalloc.start()
    try:
        tried(BODIES[name])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < MOST_MEMORY
    begun = time.thread_time()
    tried(BODIES[name])
    assert time.thread_time() - begun < MOST_SECONDS


def tried(body: bytes) -> None:
    """Parse a body that may be wrong."""
    with contextlib.suppress(ValueError):
        parse(body)


def test_the_number_of_values_is_exact() -> None:
    within = b"[" + b'{"a,":"[{"},' * (MAX_VALUES // 2 - 1) + b"0]"
    assert len(parse(within)[0]) == MAX_VALUES // 2
    for more in (b"[0," + within[1:], within.replace(b"0]", b"[]]"), within.replace(b"0", b"0,0")):
        with pytest.raises(BoundError, match="more than 4096 values"):
            parse(more)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 900, 3000])
def test_white_space_hides_no_depth(depth: int) -> None:
    with pytest.raises(DepthError):
        parse(b" " * 8 * MAX_VALUES + b"[" * depth + b"]" * depth)


def test_the_digits_of_an_integer_are_bounded() -> None:
    longest = "9" * MAX_DIGITS
    assert parse(longest.encode()) == (int(longest), [])
    assert parse(f"-0.{longest}9e1".encode())[0] == pytest.approx(-10)
    with pytest.raises(BoundError, match="more than 400 digits"):
        parse(f'{{"a": [{longest}9]}}'.encode())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "latin-1"])
def test_a_body_is_in_utf_8(encoding: str) -> None:
    """In the bytes of another encoding brackets could be hidden from the check of the depth."""
    with pytest.raises(ValueError, match="UTF-8"):
        parse('{"naïve": 1}'.encode(encoding))
    assert parse('\ufeff{"naïve": 1}'.encode()) == ({"naïve": 1}, [])


def test_names_in_paths_of_repeated_names_are_cut() -> None:
    inner = b'{"%s":1,"%s":2}' % (b"b" * 999, b"b" * 999)
    body = b'{"%s":%s}' % (b"a" * 999, inner)
    assert parse(body)[1] == [f"{'a' * MAX_SHOWN}….{'b' * MAX_SHOWN}…"]


@pytest.mark.attack("thousands-of-problems")
@pytest.mark.parametrize(
    ("pair", "code"),
    [('"field-{}":0', "UnknownField"), ('"field-{0}":0,"field-{0}":1', "Duplicate")],
    ids=["unknown", "repeated"],
)
async def test_a_response_names_the_first_problems_and_counts_the_rest(
    pair: str, code: str
) -> None:
    members = ['"name":"KEY","value":"x"', *map(pair.format, range(2000))]
    body, headers = f"{{{','.join(members)}}}", {"content-type": "application/json"}
    async with bare_client(bare_app()) as client:
        answer = await client.post("/api/secrets", content=body, headers=headers)
    *named, last = reported(answer, 400)["details"]
    assert [each["code"] for each in named] == [code] * MOST_DETAILS
    assert (last["field"], last["code"]) == ("", "MoreProblems")
    assert last["message"].startswith(f"{2000 - MOST_DETAILS} more ")
    assert len(answer.content) < 16_384


async def test_a_long_name_is_cut_in_a_response() -> None:
    async with bare_client(bare_app()) as client:
        for answer in (
            await client.post("/api/secrets", json={"a" * 100_000: 0}),
            await client.get("/api/secrets", params={"a" * 50_000: 0}),
        ):
            (*_, cut) = reported(answer, 400)["details"]
            assert cut["field"] == f"{'a' * MAX_SHOWN}…"
            assert len(answer.content) < 2000


def test_as_many_problems_as_are_named_are_not_counted() -> None:
    details = [Detail(str(number), "Invalid", "is wrong") for number in range(MOST_DETAILS + 1)]
    exact = ApiError(400, "BAD_REQUEST", "wrong", details[:-1])
    assert exact.details == tuple(details[:-1])
    more = ApiError(400, "BAD_REQUEST", "wrong", details)
    assert more.details[:-1] == tuple(details[:-1])
    assert more.details[-1].message.startswith("1 more ")
