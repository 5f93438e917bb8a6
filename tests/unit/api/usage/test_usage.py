"""Reports, signatures and prices: what is taken, what is refused, what it costs."""

import contextlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister_api.errors import ApiError
from cloister_api.usage.events import (
    ATTRIBUTE_BYTES,
    MAX_EVENTS,
    CountedEvent,
    judge_events,
    read_report,
)
from cloister_api.usage.ingest import PATH, ReportSignature
from cloister_api.usage.prices import (
    Price,
    PriceFileError,
    PriceList,
    Prices,
    cost_of,
    read_prices,
)
from cloister_api.usage.windows import LEVELS, CollectedSums
from tests.support.builders.usage import event, report, sign

NOW = datetime(2026, 11, 22, 4, 30, 2, tzinfo=UTC)
NOW_US = round(NOW.timestamp() * 1_000_000)


def judge(**change: Any) -> tuple[list[CountedEvent], list[str]]:
    body = report("d1", [event("e1", NOW, **change)])
    taken, rejected = judge_events(read_report(body), NOW_US)
    return taken, [one.reason for one in rejected]


def test_an_event_is_read_with_everything() -> None:
    (one,), _ = judge(
        api_key="tk_x",
        request_id="req_1",
        customer_requests=0,
        meters=[
            {"name": "input_tokens", "quantity": 7},
            {"name": "cached_input_tokens", "quantity": 7},
            {"name": "pages", "quantity": 3},
        ],
        attributes={"model": "north", "route": "/v1", "streaming": True, "enclave": "e"},
    )
    assert (one.at, one.tokens, one.requests) == (NOW_US, (7, 0, 7), 0)
    assert (one.service, one.operation, one.model) == ("router", "model_request", "north")
    assert (one.others, one.request_id) == ({"pages": 3}, "req_1")
    assert json.loads(one.attributes or "")["enclave"] == "e"
    assert "tk_x" not in repr(one)
    (plain,), _ = judge(attributes=None, meters=[])
    assert (plain.model, plain.requests, plain.tokens, plain.api_key) == ("", 1, (0, 0, 0), None)


LEFT_OUT = ("request_id", "api_key", "customer_requests", "attributes", "reporter")
"""Fields of an event that may be left out."""


@pytest.mark.spec("26.5")
def test_null_is_left_out_and_a_nil_list_of_go_is_empty() -> None:
    absent = event("e1", NOW, meters=[])
    for name in LEFT_OUT:
        absent.pop(name, None)
    null = absent | dict.fromkeys((*LEFT_OUT, "meters"))
    taken, rejected = judge_events(read_report(report("d1", [absent, null])), NOW_US)
    assert rejected == []
    assert taken[0] == taken[1]
    nothing = read_report(b'{"delivery_id": "d", "events": null}')
    assert judge_events(nothing, NOW_US) == ([], [])


REPORTER = {"id": "router-1", "service": "router"}
"""What reporters of the first generation say of themselves in every event."""


@pytest.mark.spec("26.5")
@pytest.mark.parametrize(
    ("fields", "requests"),
    [
        ({}, 0),
        ({"customer_requests": 0}, 0),
        ({"customer_requests": 3}, 3),
        ({"reporter": REPORTER}, 1),
        ({"reporter": REPORTER, "customer_requests": 0}, 0),
        ({"reporter": REPORTER, "customer_requests": 2}, 2),
    ],
)
def test_requests_that_are_left_out_are_none_or_one_of_the_first_reporters(
    fields: dict[str, Any], requests: int
) -> None:
    """Go leaves a 0 out; the first generation had no such field, and counted each event."""
    (one,), _ = judge(**{"customer_requests": None, **fields})
    assert one.requests == requests


@pytest.mark.spec("20.1")
def test_unknown_fields_are_ignored_wherever_they_are() -> None:
    more = {"colour": {"deep": [1, {"a": None}]}}
    (plain,), _ = judge()
    (one,), _ = judge(
        operation={"service": "router", "name": "model_request", "class": "large", **more},
        meters=[
            {"name": "input_tokens", "quantity": 100, "unit": "token", **more},
            {"name": "output_tokens", "quantity": 10},
        ],
        principal={"organization": "acme"},
        **more,
    )
    assert one == plain
    body = {"delivery_id": "d", "events": [], "sent_by": "router", **more}
    assert read_report(json.dumps(body).encode()).delivery_id == "d"


def test_times_may_have_nanoseconds_and_zones() -> None:
    (one,), _ = judge(occurred_at="2026-11-22T05:30:02.123456789+01:00")
    assert one.at == NOW_US + 123_457


@pytest.mark.spec("26.5", "26.7")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"event_id": ""}, "event_id"),
        ({"event_id": 5}, "event_id"),
        ({"occurred_at": "2026-11-22T04:30:02"}, "occurred_at"),
        ({"occurred_at": "soon"}, "occurred_at"),
        ({"occurred_at": (NOW - timedelta(days=90, seconds=1)).isoformat()}, "90 days ago"),
        ({"occurred_at": (NOW + timedelta(minutes=10, seconds=1)).isoformat()}, "10 minutes ahead"),
        ({"operation": {"service": "router"}}, "name"),
        ({"operation": {"service": "r\x00", "name": "x"}}, "NUL"),
        ({"meters": None}, "meters"),
        ({"meters": {}}, "array"),
        ({"meters": [None]}, "meters[0]"),
        ({"meters": [{"name": "input_tokens"}]}, "quantity"),
        ({"meters": [{"quantity": 1}]}, "name"),
        ({"meters": [{"name": "input_tokens", "quantity": -1}]}, "quantity"),
        ({"meters": [{"name": "input_tokens", "quantity": 1.5}]}, "quantity"),
        ({"meters": [{"name": "input_tokens", "quantity": 10**10}]}, "quantity"),
        ({"meters": [{"name": "a", "quantity": 1}] * 2}, "a appears twice"),
        ({"meters": [{"name": "cached_input_tokens", "quantity": 1}]}, "more than input_tokens"),
        ({"customer_requests": -1}, "customer_requests"),
        ({"attributes": {"model": 5}}, "model"),
        ({"attributes": {"model": "x" * 254}}, "model"),
        ({"attributes": []}, "object"),
    ],
)
def test_an_event_that_breaks_a_rule_is_refused_alone(change: dict[str, Any], words: str) -> None:
    body = report("d1", [event("a", NOW), event("b", NOW, **change), event("c", NOW)])
    taken, (refused,) = judge_events(read_report(body), NOW_US)
    assert [one.event_id for one in taken] == ["a", "c"]
    assert refused.index == 1
    assert words in refused.reason


@pytest.mark.spec("26.10")
@pytest.mark.parametrize("age", [timedelta(days=90), timedelta(0), timedelta(minutes=-10)])
def test_the_bounds_of_time_belong_to_it(age: timedelta) -> None:
    assert judge(occurred_at=(NOW - age).isoformat())[1] == []


def test_attributes_that_are_too_large_are_not_kept() -> None:
    (one,), _ = judge(attributes={"model": "north", "note": "x" * ATTRIBUTE_BYTES})
    assert (one.model, one.attributes) == ("north", None)


@pytest.mark.spec("26.6")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"delivery_id": "", "events": []}',
        b'{"delivery_id": "a\\u0000", "events": []}',
        b'{"delivery_id": "d", "events": {}}',
        b'{"events": []}',
        b'{"delivery_id": "d"}',
        b'{"delivery_id": "d", "event": []}',
        json.dumps({"delivery_id": "d", "events": [1] * (MAX_EVENTS + 1)}).encode(),
    ],
)
def test_a_malformed_report_is_refused_as_a_whole(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        read_report(body)
    assert caught.value.status == 400


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=30), max_size=3))
def test_no_bytes_make_reading_fail_otherwise(parts: list[bytes]) -> None:
    body = b'{"delivery_id":"d","events":[' + b",".join(parts) + b"]}"
    with contextlib.suppress(ApiError):
        taken, rejected = judge_events(read_report(body), NOW_US)
        assert taken == []
        assert len(rejected) <= body.count(b",")


def signed(**change: str) -> dict[str, str]:
    headers = sign("secret", "d1", b"body", NOW)
    return {**headers, **{f"x-cloister-{name}": value for name, value in change.items()}}


def test_a_right_signature_is_taken() -> None:
    one = ReportSignature.of(signed(), "cloister")
    one.check_time(NOW)
    assert one.check(b"secret", "POST", PATH, b"body")
    upper = ReportSignature.of(signed(signature=one.signature.upper()), "cloister")
    assert upper.check(b"secret", "POST", PATH, b"body")


@pytest.mark.spec("26.8", "26.9")
@pytest.mark.parametrize(
    ("change", "secret", "path", "body"),
    [
        ({}, b"other", PATH, b"body"),
        ({}, b"secret", "/other", b"body"),
        ({}, b"secret", PATH, b"body2"),
        ({"nonce": "d2"}, b"secret", PATH, b"body"),
        ({"reporter-id": "router-2"}, b"secret", PATH, b"body"),
        ({"timestamp": "2026-11-22T04:30:03Z"}, b"secret", PATH, b"body"),
        ({"signature": "é"}, b"secret", PATH, b"body"),
    ],
)
def test_a_wrong_signature_is_refused(
    change: dict[str, str], secret: bytes, path: str, body: bytes
) -> None:
    with pytest.raises(ApiError) as caught:
        ReportSignature.of(signed(**change), "cloister").check(secret, "POST", path, body)
    assert caught.value.status == 401


@pytest.mark.parametrize("name", ["reporter-id", "timestamp", "nonce", "signature"])
def test_a_missing_header_is_named(name: str) -> None:
    with pytest.raises(ApiError, match=f"x-cloister-{name} is missing"):
        ReportSignature.of(signed(**{name: ""}), "cloister")


@pytest.mark.spec("26.9")
@pytest.mark.parametrize(
    ("stamp", "right"),
    [
        ("2026-11-22T04:30:02.123456789Z", True),
        ("2026-11-22T04:40:02Z", True),
        ("2026-11-22T04:40:03Z", False),
        ("2026-11-22T04:20:01Z", False),
        ("2026-11-22T04:30:02+01:00", False),
        ("2026-13-22T04:30:02Z", False),
        ("1795321802", False),
    ],
)
def test_the_time_of_a_report_is_bounded(stamp: str, *, right: bool) -> None:
    one = ReportSignature.of(signed(timestamp=stamp), "cloister")
    if right:
        one.check_time(NOW)
    else:
        with pytest.raises(ApiError):
            one.check_time(NOW)


FILE = """
effectiveFrom: 2026-12-01T00:00:00Z
prices:
- {service: router, operation: model_request, meter: input_tokens, model: north, per1M: 0.0375}
- service: router
  operation: model_request
  meter: cached_input_tokens
  model: north
  per1M: "0.01"
- {service: router, operation: model_request, meter: output_tokens, per1M: 2}
- {service: router, operation: model_request, perRequest: 0.000000001}
- {service: ocr, operation: convert, meter: pages, per1M: 1000}
"""


def prices_of(text: str = FILE) -> PriceList:
    _, found = read_prices(yaml.safe_load(text))
    return PriceList(1, 0, found)


def test_a_price_file_is_read_exactly() -> None:
    since, found = read_prices(yaml.safe_load(FILE))
    assert since == datetime(2026, 12, 1, tzinfo=UTC)
    assert found[0] == Price("router", "model_request", "input_tokens", "north", 37_500_000)
    assert (found[3].meter, found[3].amount) == ("request", 1)


@pytest.mark.spec("26.12")
def test_costs_are_integers_rounded_once() -> None:
    rates = prices_of().rates("router", "model_request", "north")
    assert cost_of(rates, (1_000_000, 0, 0), 0, None) == 37_500_000
    assert cost_of(rates, (1, 0, 0), 0, None) == 38
    assert cost_of(rates, (1_000_000, 1_000_000, 400_000), 1, None) == (
        22_500_000 + 4_000_000 + 2_000_000_000 + 1
    )
    assert cost_of(rates, (0, 0, 0), 0, {"pages": 5}) == 0
    pages = prices_of().rates("ocr", "convert", "any")
    assert cost_of(pages, (0, 0, 0), 0, {"pages": 5, "other": 9}) == 5_000_000


@pytest.mark.spec("26.12")
def test_a_models_own_prices_come_first() -> None:
    found = prices_of(FILE.replace("model: north, per1M: 0.0375", "per1M: 1"))
    other = found.rates("router", "model_request", "south")
    north = found.rates("router", "model_request", "north")
    assert (other.input, other.cached, other.output) == (10**9, 10**9, 2 * 10**9)
    assert (north.input, north.cached) == (10**9, 10**7)
    assert found.rates("router", "other", "north").output == 0


@pytest.mark.spec("26.12")
def test_cached_tokens_cost_as_input_unless_they_have_a_price() -> None:
    text = FILE.replace('  model: north\n  per1M: "0.01"', "  per1M: 0.5")
    assert prices_of(text).rates("router", "model_request", "south").cached == 500_000_000
    assert prices_of(text).rates("router", "model_request", "north").cached == 37_500_000


def test_the_list_in_force_is_that_of_the_time() -> None:
    lists = [PriceList(1, 10, ()), PriceList(2, 20, ()), PriceList(3, 10, ())]
    prices = Prices(lists)
    versions = [found and found.version for found in map(prices.at, (9, 10, 19, 20, 99))]
    assert versions == [None, 3, 3, 2, 2]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("effectiveFrom: 2026-12-01T00:00:00Z", "effectiveFrom: 2026-12-01", "effectiveFrom"),
        ("effectiveFrom", "from", "keys effectiveFrom and prices"),
        ("per1M: 2}", "per1M: -2}", "between 0 and"),
        ("per1M: 2}", "per1M: two}", "number of dollars"),
        ("per1M: 2}", "per1M: true}", "number of dollars"),
        ("per1M: 2}", "per1M: .inf}", "between 0 and"),
        ("per1M: 2}", "price: 2}", "price is not a field"),
        ("per1M: 2}", "perRequest: 2}", "perRequest goes without a meter"),
        (", per1M: 2}", "}", "either per1M or perRequest"),
        ("perRequest: 0.000000001", "perRequest: 0.0000000001", "nine digits"),
        ("service: ocr", "service: 5", r"prices\[4\].service"),
        ("meter: output_tokens", "meter: input_tokens, model: north", "appears twice"),
        ("- {service: ocr", "- 5\n- {service: ocr", "is not an object"),
    ],
)
def test_a_price_file_that_breaks_a_rule_is_named(old: str, new: str, words: str) -> None:
    with pytest.raises(PriceFileError, match=words):
        read_prices(yaml.safe_load(FILE.replace(old, new)))


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 91 * 86_400), st.integers(1, 3), st.integers(1, 2), st.integers(0, 99)
        ),
        max_size=30,
    )
)
def test_folding_is_adding_each_event_at_each_level(
    events: list[tuple[int, int, int, int]],
) -> None:
    collected = CollectedSums()
    wanted: list[dict[tuple[int, ...], int]] = [{} for _ in LEVELS]
    for age, key, model, tokens in events:
        at = NOW_US - age * 1_000_000
        collected.add((key, 9), model, at, NOW_US, (tokens, 0, 0, 1, 0))
        for level, sums in zip(LEVELS, wanted, strict=True):
            if level.keep is None or age <= level.keep:
                place = (9, at // 1_000_000 // level.seconds * level.seconds, key, model)
                sums[place] = sums.get(place, 0) + tokens
    for (_, keys, points), sums in zip(collected.rolled_up(), wanted, strict=True):
        assert {place: values[0] for place, values in keys.items()} == sums
        over_keys: dict[tuple[int, ...], int] = {}
        for (organization, begin, _, model), tokens in sums.items():
            spot = (organization, begin, 0, model)
            over_keys[spot] = over_keys.get(spot, 0) + tokens
        assert {place: values[0] for place, values in points.items()} == over_keys
