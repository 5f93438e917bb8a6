"""When an order may be sent to an ACME authority, and which settings are refused."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cloister_api.certificates.limits import domains, longest_window, next_order, permitted_at
from cloister_api.certificates.settings import AcmeLimits, CertificateSettings, RateWindow
from cloister_api.ledger.certificates import (
    CertificateOrder,
    DueOrders,
    OrderState,
    Submission,
)

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
LIMITS = AcmeLimits(
    orders=RateWindow(count=3, seconds=100),
    domain=RateWindow(count=2, seconds=1000),
    names=RateWindow(count=1, seconds=500),
)


SHARED = AcmeLimits(
    orders=RateWindow(count=1000, seconds=7200), domain=RateWindow(count=10, seconds=7200)
)
"""Limits of which an organization has two orders for a domain, and renewals another two."""


def order(*names: str, uid: str = "u", namespace: str = "n", url: str = "") -> CertificateOrder:
    return CertificateOrder(
        id=names[0], enclave_uid=uid, enclave=f"{namespace}/e", request_digest="d",
        request="r", names=names, state=OrderState.QUEUED, message="", failures=0, created_at=NOW,
        due_at=NOW, order_url=url or None, certificate=None, not_after=None,
    )  # fmt: skip


def sent(seconds_ago: int, *names: str, namespace: str = "") -> Submission:
    return Submission(NOW - timedelta(seconds=seconds_ago), names, namespace)


def chosen(
    orders: list[CertificateOrder],
    submissions: list[Submission],
    certified: dict[str, tuple[int, int]] | None = None,
) -> tuple[str | None, dict[str, str]]:
    """Return which order is next, and what those before it wait for.

    Parameters
    ----------
    certified
        Seconds since an enclave got its certificate, and until that expires.
    """
    periods = {
        uid: (NOW - timedelta(seconds=ago), NOW + timedelta(seconds=left))
        for uid, (ago, left) in (certified or {}).items()
    }
    choice = next_order(SHARED, DueOrders(orders, submissions, periods), lambda _: "", NOW)
    waits = {name: wait.reason for name, wait in choice.waits.items()}
    return choice.order.id if choice.order else None, waits


@pytest.mark.parametrize(
    ("submissions", "waits"),
    [
        ([], None),
        ([sent(10, "b.example")], None),
        ([sent(10, "a.example")], 490),
        ([sent(499, "a.example")], 1),
        ([sent(500, "a.example")], None),
        ([sent(20, "x.example"), sent(10, "y.other"), sent(5, "z.third")], 80),
        ([sent(600, "x.a.example"), sent(900, "y.a.example"), sent(950, "z.a.example")], 100),
        ([sent(1000, "x.a.example"), sent(600, "y.a.example")], None),
    ],
)
def test_an_order_waits_until_every_limit_lets_it_pass(
    submissions: list[Submission], waits: int | None
) -> None:
    asked = order("a.example") if len(submissions) < 3 else order("w.a.example")
    wait = permitted_at(LIMITS, asked, submissions, NOW, renewal=True)
    until = wait.until if wait else None
    assert until == (None if waits is None else NOW + timedelta(seconds=waits))


def test_the_longest_rate_limit_window_counts() -> None:
    assert longest_window(LIMITS) == timedelta(seconds=1000)


def test_names_count_for_their_last_two_labels() -> None:
    assert domains(["a.b.example.com", "c.example.com", "x.co.uk"]) == {"example.com", "co.uk"}


def test_an_organization_that_used_its_share_waits_and_is_told_until_when() -> None:
    used = [sent(60, f"{n}.a.example", namespace="evil") for n in range(2)]
    orders = [
        order("x.a.example", namespace="evil"),
        order("y.a.example", namespace="good"),
    ]
    assert chosen(orders, used) == ("y.a.example", {})
    assert chosen(orders[:1], used) == (
        None,
        {
            "x.a.example": "waits for the rate limits of the authority until 2026-11-22T13:59:00Z: "
            "this organization has used its share, 2 orders for a.example in 2 hours; an "
            "administrator can raise it (certificates.acme.limits.organizationPercent)"
        },
    )


def test_the_organization_that_sent_the_fewest_is_next() -> None:
    used = [sent(60, "1.a.example", namespace="more"), sent(9000, "2.a.example", namespace="less")]
    older, newer = order("x.a.example", namespace="more"), order("y.b.example", namespace="less")
    assert chosen([older, newer], used[:1])[0] == "y.b.example"
    assert chosen([older, newer], [])[0] == "x.a.example"


def test_renewals_are_first_and_have_a_reserve() -> None:
    used = [sent(60, f"{n}.a.example", namespace=f"n{n}") for n in range(8)]
    new, renewal = order("x.a.example", namespace="new"), order("y.a.example", uid="old")
    late = {"old": (200, 100)}
    assert chosen([new, renewal], [], late)[0] == "y.a.example"
    assert chosen([new, renewal], used, late)[0] == "y.a.example"
    assert chosen([new], used) == (
        None,
        {"x.a.example": "waits for the rate limits of the authority until 2026-11-22T13:59:00Z"},
    )
    own = [sent(60, f"{n}.a.example", namespace="n") for n in range(4)]
    assert chosen([renewal], own, late)[0] == "y.a.example", "a renewal waited for a share"


def test_a_request_long_before_its_certificate_expires_is_not_a_renewal() -> None:
    used = [sent(60, f"{n}.a.example", namespace="n") for n in range(2)]
    assert chosen([order("y.a.example", uid="old")], used, {"old": (99, 101)})[0] is None
    assert chosen([order("y.a.example", uid="old")], used, {"old": (100, 100)})[0] == "y.a.example"


def test_an_order_at_the_authority_is_resumed_whatever_was_sent() -> None:
    used = [sent(60, f"{n}.a.example", namespace="n") for n in range(10)]
    assert chosen([order("y.a.example", url="https://acme.example/1")], used)[0] == "y.a.example"


ACME: dict[str, Any] = {
    "directory": "https://acme.example/directory",
    "accountKey": "account.key",
    "termsOfServiceAgreed": True,
    "dns": {
        "zones": ["containers.example"],
        "server": "192.0.2.53:53",
        "keyName": "updates",
        "keyFile": "dns.key",
    },
}


def test_paths_are_relative_to_the_file() -> None:
    settings = CertificateSettings.model_validate({"issuer": "acme", "acme": ACME})
    acme = settings.anchored(Path("/etc/cloister")).acme
    assert acme is not None
    assert acme.account_key == Path("/etc/cloister/account.key")
    assert acme.dns.key_file == Path("/etc/cloister/dns.key")
    assert acme.ca_bundle is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"issuer": "own"}, "own: add it"),
        ({"issuer": "acme", "own": {"certificate": "c", "key": "k"}}, "own: remove it"),
        ({"acme": {**ACME, "termsOfServiceAgreed": False}}, "read the terms"),
        ({"acme": {**ACME, "directory": "http://acme.example"}}, "directory"),
        ({"acme": {**ACME, "dns": {**ACME["dns"], "server": "ns.example"}}}, "server"),
        ({"acme": {**ACME, "contact": ["ops@example.com"]}}, "contact"),
    ],
)
def test_what_cannot_work_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        CertificateSettings.model_validate({"issuer": "acme", "acme": ACME, **change})
