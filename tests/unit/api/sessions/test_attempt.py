"""An attempt to sign in: sealed in the browser, short-lived, and answered by its own response."""

import base64
import hashlib
from datetime import UTC, datetime, timedelta

import pytest

from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.sessions.provider.attempt import (
    LIFE,
    SignInAttempt,
    code_of,
    new_attempt,
    opened,
    safe_next,
    sealed,
)
from cloister_api.sessions.provider.refusal import RefusalReason, SignInRefused

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
MATERIAL = KeyMaterial(b"i" * 32, b"s" * 32)
ISSUER = "https://id.example.test"


def attempt_with(**changes: object) -> SignInAttempt:
    given = {"state": "s", "nonce": "n", "verifier": "v", "next": "/", "begun": NOW}
    return SignInAttempt.model_validate({**given, **changes})


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/o/acme/containers",
        "/o/acme/containers?page=2&q=a%20b",
        "/organizations?all",
        "/sessions",
    ],
)
def test_a_path_of_the_dashboard_is_kept(path: str) -> None:
    assert safe_next(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "o/acme",
        "//attacker.test",
        "///attacker.test",
        "/\\attacker.test",
        "/o\\..\\x",
        "/\t/attacker.test",
        "/ /attacker.test",
        "/\n/attacker.test",
        "\t//attacker.test",
        "https://attacker.test/",
        "javascript:alert(1)",
        "/ö",
        "/" + "x" * 512,
        "/session",
        "/session/",
        "/session?next=/",
        "/session/start",
        "/session/once/token",
    ],
)
def test_any_other_place_becomes_the_start(path: str) -> None:
    assert safe_next(path) == "/"


def test_an_attempt_is_random_and_has_a_challenge() -> None:
    one, other = (new_attempt("/x", NOW, 900) for _ in range(2))
    secrets = {one.state, one.nonce, one.verifier, other.state, other.nonce, other.verifier}
    assert len(secrets) == 6
    assert all(len(each) == 43 for each in secrets)
    digest = base64.urlsafe_b64encode(hashlib.sha256(one.verifier.encode()).digest())
    assert one.challenge == digest.decode().rstrip("=")
    assert (one.next, one.max_age, one.begun) == ("/x", 900, NOW)
    for secret in secrets:
        assert secret not in repr(one)


def test_a_cookie_opens_as_it_was_sealed() -> None:
    attempt = new_attempt("/x", NOW, None)
    cookie = sealed(attempt, MATERIAL)
    assert attempt.state not in cookie
    assert len(sealed(new_attempt("/" + "x" * 511, NOW, 900), MATERIAL)) < 3000, (
        "browsers keep 4096"
    )
    for after in (timedelta(seconds=-30), timedelta(0), LIFE):
        assert opened(cookie, MATERIAL, NOW + after) == attempt


@pytest.mark.parametrize(
    ("cookie", "after", "reason"),
    [
        ("", timedelta(0), RefusalReason.NOT_BEGUN),
        ("made-up", timedelta(0), RefusalReason.NOT_BEGUN),
        ("v1.AAAA.AAAA", timedelta(0), RefusalReason.NOT_BEGUN),
        (sealed(attempt_with(), MATERIAL)[:-4] + "AAAA", timedelta(0), RefusalReason.NOT_BEGUN),
        (
            MATERIAL.seal("{}", context="an attempt to sign in"),
            timedelta(0),
            RefusalReason.NOT_BEGUN,
        ),
        (
            MATERIAL.seal("[", context="an attempt to sign in"),
            timedelta(0),
            RefusalReason.NOT_BEGUN,
        ),
        (
            MATERIAL.seal(attempt_with().model_dump_json(), context="another"),
            timedelta(0),
            RefusalReason.NOT_BEGUN,
        ),
        (sealed(attempt_with(), MATERIAL), LIFE + timedelta(seconds=1), RefusalReason.TOO_LATE),
        (sealed(attempt_with(), MATERIAL), timedelta(seconds=-31), RefusalReason.TOO_LATE),
    ],
)
def test_another_cookie_does_not_open(cookie: str, after: timedelta, reason: RefusalReason) -> None:
    with pytest.raises(SignInRefused) as refused:
        opened(cookie, MATERIAL, NOW + after)
    assert refused.value.reason is reason


def test_a_browser_without_an_attempt_is_told_from_one_that_was_changed() -> None:
    with pytest.raises(SignInRefused, match="sent no attempt"):
        opened("", MATERIAL, NOW)
    with pytest.raises(SignInRefused, match="does not open"):
        opened("made-up", MATERIAL, NOW)


def test_a_cookie_of_another_installation_does_not_open() -> None:
    cookie = sealed(attempt_with(), KeyMaterial(b"i" * 32, b"t" * 32))
    with pytest.raises(SignInRefused, match="not-begun"):
        opened(cookie, MATERIAL, NOW)


@pytest.mark.parametrize(
    ("parameters", "names_issuer"),
    [
        ([("code", "c"), ("state", "s")], False),
        ([("code", "c"), ("state", "s"), ("iss", ISSUER)], False),
        ([("code", "c"), ("state", "s"), ("iss", ISSUER)], True),
        ([("session_state", "x"), ("state", "s"), ("code", "c")], False),
    ],
)
def test_the_code_of_a_response_is_taken(
    parameters: list[tuple[str, str]], *, names_issuer: bool
) -> None:
    code = code_of(parameters, attempt_with(), issuer=ISSUER, names_issuer=names_issuer)
    assert code == "c"


@pytest.mark.parametrize(
    ("parameters", "names_issuer", "reason"),
    [
        ([("code", "c")], False, RefusalReason.NOT_BEGUN),
        ([("code", "c"), ("state", "")], False, RefusalReason.NOT_BEGUN),
        ([("code", "c"), ("state", "S")], False, RefusalReason.NOT_BEGUN),
        ([("code", "c"), ("state", "ü")], False, RefusalReason.NOT_BEGUN),
        ([("code", "c"), ("state", "s"), ("state", "s")], False, RefusalReason.NOT_BEGUN),
        ([("code", "c"), ("state", "s"), ("code", "d")], False, RefusalReason.NOT_BEGUN),
        ([("code", "c"), ("state", "s")], True, RefusalReason.OTHER_PROVIDER),
        (
            [("code", "c"), ("state", "s"), ("iss", f"{ISSUER}/")],
            False,
            RefusalReason.OTHER_PROVIDER,
        ),
        ([("code", "c"), ("state", "s"), ("iss", "")], True, RefusalReason.OTHER_PROVIDER),
        ([("error", "access_denied"), ("state", "s")], False, RefusalReason.DECLINED),
        ([("error", "access_denied"), ("state", "s")], True, RefusalReason.OTHER_PROVIDER),
        ([("error", "server_error"), ("state", "s")], False, RefusalReason.MISUNDERSTOOD),
        ([("error", ""), ("state", "s"), ("code", "c")], False, RefusalReason.MISUNDERSTOOD),
        ([("state", "s")], False, RefusalReason.MISUNDERSTOOD),
        ([("state", "s"), ("code", "")], False, RefusalReason.MISUNDERSTOOD),
        ([("state", "s"), ("code", "c" * 4097)], False, RefusalReason.MISUNDERSTOOD),
    ],
)
def test_another_response_is_refused(
    parameters: list[tuple[str, str]], *, names_issuer: bool, reason: RefusalReason
) -> None:
    with pytest.raises(SignInRefused) as refused:
        code_of(parameters, attempt_with(), issuer=ISSUER, names_issuer=names_issuer)
    assert refused.value.reason is reason


def test_what_a_log_has_of_an_error_is_one_line() -> None:
    parameters = [("error", "x\nforged line" + "y" * 500), ("state", "s")]
    with pytest.raises(SignInRefused) as refused:
        code_of(parameters, attempt_with(), issuer=ISSUER, names_issuer=False)
    assert "\n" not in refused.value.detail
    assert len(refused.value.detail) < 200
