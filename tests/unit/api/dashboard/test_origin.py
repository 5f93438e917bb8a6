"""Which requests count as those of the dashboard's own pages."""

import pytest

from cloister_api.dashboard.guard import origin_refusal
from cloister_api.sessions.settings import DashboardSettings

SETTINGS = DashboardSettings(address="https://console.example.com")
NAVIGATION = ("navigate", "document")
FETCH = ("cors", "empty")


@pytest.mark.parametrize(
    ("method", "site", "how", "passes"),
    [
        ("GET", "same-origin", FETCH, True),
        ("GET", "none", NAVIGATION, True),
        ("GET", "cross-site", NAVIGATION, True),
        ("GET", "same-site", NAVIGATION, True),
        ("GET", "same-site", FETCH, False),
        ("GET", "cross-site", ("no-cors", "image"), False),
        ("GET", "cross-site", ("navigate", "iframe"), False),
        ("POST", "same-origin", NAVIGATION, True),
        ("POST", "same-origin", FETCH, True),
        ("POST", "none", NAVIGATION, False),
        ("POST", "same-site", NAVIGATION, False),
        ("POST", "cross-site", NAVIGATION, False),
        ("DELETE", "same-site", FETCH, False),
    ],
)
def test_fetch_metadata_decides(
    *, method: str, site: str, how: tuple[str, str], passes: bool
) -> None:
    refusal = origin_refusal(
        SETTINGS, method=method, site=site, mode=how[0], destination=how[1],
        origin=SETTINGS.address,
    )  # fmt: skip
    assert (refusal == "") is passes
    assert passes or "try again" in refusal


@pytest.mark.parametrize(
    ("method", "origin", "passes"),
    [
        ("GET", None, True),
        ("GET", "null", False),
        ("GET", "https://attacker.test", False),
        ("GET", "https://console.example.com", True),
        ("POST", None, False),
        ("POST", "null", False),
        ("POST", "http://console.example.com", False),
        ("POST", "https://console.example.com.attacker.test", False),
        ("POST", "https://console.example.com", True),
    ],
)
def test_without_it_the_origin_does(*, method: str, origin: str | None, passes: bool) -> None:
    refusal = origin_refusal(
        SETTINGS, method=method, site=None, mode=None, destination=None, origin=origin
    )
    assert (refusal == "") is passes
