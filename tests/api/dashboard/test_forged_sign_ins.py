"""What a provider, or somebody between, could forge; each of it signs nobody in."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, select

from cloister_api.ledger.tables import AUDIT
from tests.support.programs.dashboard import Person
from tests.support.programs.facade import FacadeInstallation
from tests.support.programs.openid_dashboard import ForgedSignIns
from tests.support.stand_ins.http_server import Reply
from tests.support.stand_ins.openid import Forged, new_key

FOREIGN = new_key()
ADA = {"sub": "ada", "email": "ada@example.test", "email_verified": True}
UNVERIFIED = {"sub": "ada", "email": "ada@example.test"}
LONG_AGO = 1_790_000_000


async def back_from(
    sign_ins: ForgedSignIns,
    person: Person,
    forged: Forged,
    start: str = "/session/start",
    **parameters: str | None,
) -> str:
    """Begin a sign-in, and return the path of the way back."""
    begun = await person.get(start)
    assert begun.status_code == 303, begun.text
    return sign_ins.provider.consent(begun.headers["location"], replace(forged), **parameters)


@pytest.mark.parametrize(
    "forged",
    [
        Forged(),
        Forged(kid=None),
        Forged(claims={"aud": ["dash board", "other"], "azp": "dash board"}),
        Forged(claims={"email": None, "email_verified": None}, user_info=ADA),
        Forged(claims={"email_verified": None}, user_info=ADA),
    ],
)
async def test_what_is_right_signs_somebody_in(
    forged_sign_ins: ForgedSignIns, forged: Forged
) -> None:
    async with forged_sign_ins.dashboard.person() as person:
        done = await person.get(await back_from(forged_sign_ins, person, forged))
        assert done.headers["location"] == "/", done.headers["location"]
        assert "ada@example.test" in (await person.get("/session")).text


@pytest.mark.parametrize(
    ("forged", "problem"),
    [
        (Forged(key=FOREIGN), "untrusted"),
        (Forged(key=FOREIGN, kid=None), "untrusted"),
        (Forged(kid="unknown"), "untrusted"),
        (Forged(algorithm="RS512"), "untrusted"),
        (Forged(algorithm="PS384"), "untrusted"),
        (Forged(token="eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ."), "untrusted"),
        (Forged(token="no token"), "untrusted"),
        (Forged(claims={"exp": LONG_AGO}), "untrusted"),
        (Forged(claims={"exp": None}), "untrusted"),
        (Forged(claims={"iat": LONG_AGO}), "untrusted"),
        (Forged(claims={"nbf": 4_000_000_000}), "untrusted"),
        (Forged(claims={"nonce": "of another sign-in"}), "untrusted"),
        (Forged(claims={"nonce": None}), "untrusted"),
        (Forged(claims={"aud": "other"}), "untrusted"),
        (Forged(claims={"aud": ["dash board", "other"]}), "untrusted"),
        (Forged(claims={"azp": "other"}), "untrusted"),
        (Forged(claims={"sub": None}), "untrusted"),
        (Forged(claims={"iss": "https://id.attacker.test"}), "other-provider"),
        (Forged(claims={"email_verified": False}), "email-not-verified"),
        (Forged(claims={"email_verified": "true"}), "email-not-verified"),
        (Forged(claims={"email_verified": None}, user_info=UNVERIFIED), "email-not-verified"),
        (
            Forged(claims={"email": None}, user_info={**ADA, "email_verified": False}),
            "email-not-verified",
        ),
        (Forged(claims={"email": None}, user_info={**ADA, "sub": "eve"}), "untrusted"),
        (Forged(claims={"email": None}, user_info={"sub": "ada"}), "no-name"),
        (Forged(claims={"email": "two words"}), "unusable-name"),
        (Forged(answer=Reply(302, b"", {"Location": "/userinfo"})), "misunderstood"),
        (Forged(answer=Reply(500)), "unreachable"),
        (Forged(answer=Reply(200, b"[" * 100_000)), "misunderstood"),
        (Forged(answer=Reply(200, b" " * 300_000)), "misunderstood"),
        (Forged(answer=Reply(200, b"{}")), "misunderstood"),
    ],
)  # fmt: skip
async def test_what_is_forged_signs_nobody_in(
    forged_sign_ins: ForgedSignIns, forged: Forged, problem: str
) -> None:
    async with forged_sign_ins.dashboard.person() as person:
        refused = await person.get(await back_from(forged_sign_ins, person, forged))
        place = refused.headers["location"]
        assert (refused.status_code, place) == (303, f"/session?problem={problem}")
        assert not person.cookie
        assert not person.attempt
        assert 'role="alert"' in (await person.get(place)).text


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"state": None}, "not-begun"),
        ({"state": "made-up"}, "not-begun"),
        ({"code": None}, "misunderstood"),
        ({"code": "made-up"}, "not-begun"),
        ({"code": "x" * 5000}, "misunderstood"),
        ({"iss": "https://id.attacker.test"}, "other-provider"),
        ({"code": None, "error": "access_denied"}, "declined"),
        ({"code": None, "error": "server_error"}, "misunderstood"),
        ({"state": "made-up", "error": "access_denied"}, "not-begun"),
    ],
)
async def test_another_way_back_signs_nobody_in(
    forged_sign_ins: ForgedSignIns, parameters: dict[str, Any], problem: str
) -> None:
    async with forged_sign_ins.dashboard.person() as person:
        back = await back_from(forged_sign_ins, person, Forged(), **parameters)
        refused = await person.get(back)
        assert refused.headers["location"] == f"/session?problem={problem}"
        assert not person.cookie


async def test_a_repeated_parameter_signs_nobody_in(forged_sign_ins: ForgedSignIns) -> None:
    async with forged_sign_ins.dashboard.person() as person:
        back = await back_from(forged_sign_ins, person, Forged())
        refused = await person.get(f"{back}&code=another")
        assert refused.headers["location"] == "/session?problem=not-begun"


@pytest.mark.parametrize(
    ("claims", "to"),
    [
        ({}, "/session?problem=not-recent"),
        ({"auth_time": LONG_AGO}, "/session?problem=not-recent"),
        ({"auth_time": 4_000_000_000}, "/session?problem=untrusted"),
    ],
)
async def test_who_did_not_sign_in_there_lately_is_not_recent_here(
    forged_sign_ins: ForgedSignIns, claims: dict[str, Any], to: str
) -> None:
    async with forged_sign_ins.dashboard.person() as person:
        forged = Forged(claims=claims)
        back = await back_from(forged_sign_ins, person, forged, "/session/start?recent=")
        assert (await person.get(back)).headers["location"] == to


@pytest.mark.parametrize("claims", [{}, {"auth_time": LONG_AGO}])
async def test_an_old_sign_in_there_signs_in_but_is_not_recent(
    forged_sign_ins: ForgedSignIns, world: FacadeInstallation, claims: dict[str, Any]
) -> None:
    async with forged_sign_ins.dashboard.person() as person:
        back = await back_from(forged_sign_ins, person, Forged(claims=claims))
        assert (await person.get(back)).headers["location"] == "/"
        here = f"/o/{world.organization}/admin-keys"
        assert (await person.fill(here, name="ci", days="")).status_code == 403
        assert "Sign in again</a>" in (await person.get(here)).text


async def test_a_flood_of_failures_does_not_fill_the_ledger(
    forged_sign_ins: ForgedSignIns, world: FacadeInstallation
) -> None:
    async def rows() -> int:
        query = select(func.count()).where(AUDIT.c.action == "session.refused")
        async with world.ledger() as engine, engine.connect() as connection:
            return int((await connection.execute(query)).scalar_one())

    before = await rows()
    async with forged_sign_ins.dashboard.person() as person:
        for _ in range(65):
            refused = await person.get("/session/callback?code=made-up&state=made-up")
            assert refused.headers["location"] == "/session?problem=not-begun"
    assert 0 < await rows() - before <= 60
