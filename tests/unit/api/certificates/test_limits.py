"""When an order may be sent to an ACME authority, and which settings are refused."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cloister_api.certificates.limits import domains, longest_window, permitted_at
from cloister_api.certificates.settings import AcmeLimits, CertificateSettings, RateWindow
from cloister_api.ledger.certificates import CertificateOrder, OrderState, Submission

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
LIMITS = AcmeLimits(
    orders=RateWindow(count=3, seconds=100),
    domain=RateWindow(count=2, seconds=1000),
    names=RateWindow(count=1, seconds=500),
)


def order(*names: str) -> CertificateOrder:
    return CertificateOrder(
        id="1", enclave_uid="u", enclave="n/e", request_digest="d", request="r", names=names,
        state=OrderState.QUEUED, message="", failures=0, created_at=NOW, due_at=NOW,
        order_url=None, certificate=None, not_after=None,
    )  # fmt: skip


def sent(seconds_ago: int, *names: str) -> Submission:
    return Submission(NOW - timedelta(seconds=seconds_ago), names)


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
    until = permitted_at(LIMITS, NOW)(asked, submissions)
    assert until == (None if waits is None else NOW + timedelta(seconds=waits))


def test_the_longest_rate_limit_window_counts() -> None:
    assert longest_window(LIMITS) == timedelta(seconds=1000)


def test_names_count_for_their_last_two_labels() -> None:
    assert domains(["a.b.example.com", "c.example.com", "x.co.uk"]) == {"example.com", "co.uk"}


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
