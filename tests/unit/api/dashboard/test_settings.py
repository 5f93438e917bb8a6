"""Where a dashboard may be, and how long sessions last."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from cloister_api.ledger.keys.sessions import SessionMethod, SessionRow
from cloister_api.sessions.sessions import is_over, memberships_of
from cloister_api.sessions.settings import DashboardSettings, SessionSettings
from cloister_clients.settings import SettingsError
from cloister_crds.kinds.organization import Member, Role
from tests.support.builders.resources import organization_of

NOW = datetime(2026, 11, 27, tzinfo=UTC)


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://console.example.com", "console.example.com"),
        ("https://Console.Example.com:8443/", "console.example.com:8443"),
        ("https://console.example.com:443", "console.example.com"),
        ("http://127.0.0.1:80", "127.0.0.1"),
        ("http://127.0.0.1:8090", "127.0.0.1:8090"),
        ("http://[::1]:8090", "[::1]:8090"),
        ("http://localhost:8090", "localhost:8090"),
    ],
)
def test_an_address_is_taken(address: str, host: str) -> None:
    settings = DashboardSettings(address=address)
    assert settings.host == host
    assert settings.address.endswith(f"://{host}"), "as browsers write it in Origin"


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("console.example.com", "is not an address"),
        ("", "is not an address"),
        ("https://console.example.com:99999", "is not an address"),
        ("https://console.example.com:abc", "is not an address"),
        ("https://exa mple.com", "is not an address"),
        ("https://console.example.com.", "is not an address"),
        ("https://ada@console.example.com", "is not an address"),
        ("https://example.com/console", "has a path"),
        ("http://console.example.com", "browsers would keep no cookie"),
        ("http://10.0.0.1", "browsers would keep no cookie"),
        ("ftp://127.0.0.1", "browsers would keep no cookie"),
    ],
)
def test_another_address_is_refused(address: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        DashboardSettings(address=address)


@pytest.mark.parametrize(
    ("address", "domain"),
    [
        ("https://console.containers.example", "containers.example"),
        ("https://containers.example", "containers.example"),
        ("https://example.com", "containers.example.com"),
    ],
)
def test_an_address_among_those_of_containers_is_refused(address: str, domain: str) -> None:
    with pytest.raises(SettingsError, match="another domain"):
        DashboardSettings(address=address).require_apart(domain)


def test_an_address_beside_those_of_containers_is_taken() -> None:
    DashboardSettings(address="https://console.example.com").require_apart("example.net")
    DashboardSettings(address="http://127.0.0.1:8090").require_apart("containers.example")


def test_an_idle_life_beyond_the_whole_one_is_refused() -> None:
    with pytest.raises(ValidationError, match="idleMinutes"):
        SessionSettings(idle_minutes=61, absolute_minutes=60)


@pytest.mark.parametrize(
    ("seen", "ends", "ended", "over"),
    [
        (0, 60, False, False),
        (0, 0, False, True),
        (0, 60, True, True),
        (-480, 60, False, True),
        (-479, 60, False, False),
    ],
)
def test_a_session_is_over_by_age_by_idleness_or_because_it_was_ended(
    *, seen: int, ends: int, ended: bool, over: bool
) -> None:
    row = SessionRow(
        id="a", user="ada", method=SessionMethod.ONCE, agent="",
        authenticated_at=NOW, created_at=NOW,
        seen_at=NOW + timedelta(minutes=seen), ends_at=NOW + timedelta(minutes=ends),
        ended_at=NOW if ended else None, ended_because="signed out" if ended else None,
    )  # fmt: skip
    assert is_over(row, NOW, SessionSettings()) is over


def test_memberships_are_those_of_organizations_that_last() -> None:
    member = Member(user="ada", role=Role.ADMIN)
    lasting = organization_of(members=(member, Member(user="bob")))
    ending = lasting.model_copy(
        update={"metadata": lasting.metadata.model_copy(update={"deletion_timestamp": NOW})}
    )
    (found,) = memberships_of("ada", [lasting, ending])
    assert (found.organization, found.role) == (lasting, Role.ADMIN)
    assert memberships_of("bob", [lasting])[0].role is Role.MEMBER
    assert not memberships_of("eve", [lasting])
