"""Hosts that do not respond in time are left alone, then probed by one lookup."""

from datetime import UTC, datetime, timedelta

import pytest

from cloister_clients.lanes.lane import CircuitBreaker

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOST = "slow.example"


@pytest.fixture
def breaker() -> CircuitBreaker:
    return CircuitBreaker()


def test_one_timeout_is_none(breaker: CircuitBreaker) -> None:
    assert breaker.timed_out("a", HOST, NOW) == []
    breaker.responded("a", HOST)
    assert breaker.timed_out("a", HOST, NOW) == []
    assert breaker.may_start("a", HOST, NOW)


def test_two_timeouts_of_one_organization_close_the_host_to_it_alone(
    breaker: CircuitBreaker,
) -> None:
    breaker.timed_out("a", HOST, NOW)
    assert breaker.timed_out("a", HOST, NOW) == ["a"]
    assert breaker.blocked_until("a", HOST, NOW) == NOW + timedelta(seconds=10)
    assert not breaker.may_start("a", HOST, NOW)
    assert breaker.may_start("b", HOST, NOW)
    assert breaker.may_start("a", "other.example", NOW)


def test_timeouts_of_two_organizations_close_the_host_to_all(breaker: CircuitBreaker) -> None:
    breaker.timed_out("a", HOST, NOW)
    assert breaker.timed_out("b", HOST, NOW) == [None]
    assert breaker.blocked_until("c", HOST, NOW) == NOW + timedelta(seconds=10)
    assert breaker.open_count(NOW) == 1
    assert breaker.open_count(NOW + timedelta(seconds=10)) == 0


def test_one_lookup_probes_and_opens_or_closes(breaker: CircuitBreaker) -> None:
    breaker.timed_out("a", HOST, NOW)
    breaker.timed_out("a", HOST, NOW)
    later = NOW + timedelta(seconds=10)
    assert breaker.may_start("a", HOST, later)
    breaker.started("a", HOST)
    assert not breaker.may_start("a", HOST, later)
    assert breaker.timed_out("a", HOST, later) == ["a"]
    assert breaker.blocked_until("a", HOST, later) == later + timedelta(seconds=20)
    again = later + timedelta(seconds=20)
    breaker.started("a", HOST)
    breaker.responded("a", HOST)
    assert breaker.may_start("a", HOST, again)


def test_a_cancelled_probe_leaves_room_for_the_next(breaker: CircuitBreaker) -> None:
    breaker.timed_out("a", HOST, NOW)
    breaker.timed_out("a", HOST, NOW)
    later = NOW + timedelta(seconds=10)
    breaker.started("a", HOST)
    breaker.abandoned("a", HOST)
    assert breaker.may_start("a", HOST, later)


def test_what_has_no_host_is_never_left_alone(breaker: CircuitBreaker) -> None:
    for organization in ("a", "a", "b"):
        assert breaker.timed_out(organization, "", NOW) == []
    assert breaker.may_start("a", "", NOW)
