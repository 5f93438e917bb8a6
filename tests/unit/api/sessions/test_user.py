"""Who somebody is here, by the claims of one place; and what people are told when nobody is."""

from typing import Any

import pytest

from cloister_api.sessions.provider.attempt import says_enough, user_of
from cloister_api.sessions.provider.refusal import RefusalReason, SignInRefused, sentence
from tests.unit.api.sessions.test_metadata import settings_with

VERIFIED = {"email": "ada@example.test", "email_verified": True}


@pytest.mark.parametrize(
    ("settings", "claims", "user"),
    [
        ({}, VERIFIED, "ada@example.test"),
        ({"usernamePrefix": "sso:"}, VERIFIED, "sso:ada@example.test"),
        ({"usernameClaim": "sub"}, {"sub": "ada"}, "ada"),
        ({"usernameClaim": "oid", "usernamePrefix": "e:"}, {"oid": "7"}, "e:7"),
        ({"usernameClaim": "sub"}, {"sub": "!" + "x" * 251 + "~"}, "!" + "x" * 251 + "~"),
    ],
)
def test_a_claim_names_a_user(settings: dict[str, Any], claims: dict[str, Any], user: str) -> None:
    assert user_of(claims, settings_with(**settings)) == user


@pytest.mark.parametrize(
    ("settings", "claims", "reason"),
    [
        ({}, {}, RefusalReason.NO_NAME),
        ({}, {"email": None, "email_verified": True}, RefusalReason.NO_NAME),
        ({"usernameClaim": "oid"}, VERIFIED, RefusalReason.NO_NAME),
        ({}, {"email": "ada@example.test"}, RefusalReason.EMAIL_NOT_VERIFIED),
        ({}, {**VERIFIED, "email_verified": False}, RefusalReason.EMAIL_NOT_VERIFIED),
        ({}, {**VERIFIED, "email_verified": None}, RefusalReason.EMAIL_NOT_VERIFIED),
        ({}, {**VERIFIED, "email_verified": "true"}, RefusalReason.EMAIL_NOT_VERIFIED),
        ({}, {**VERIFIED, "email_verified": 1}, RefusalReason.EMAIL_NOT_VERIFIED),
        ({}, {**VERIFIED, "email": ""}, RefusalReason.UNUSABLE_NAME),
        ({"usernamePrefix": "sso:"}, {**VERIFIED, "email": ""}, RefusalReason.UNUSABLE_NAME),
        ({}, {**VERIFIED, "email": "ada lovelace"}, RefusalReason.UNUSABLE_NAME),
        ({}, {**VERIFIED, "email": "ada@example.test\n"}, RefusalReason.UNUSABLE_NAME),
        ({}, {**VERIFIED, "email": "ädä@example.test"}, RefusalReason.UNUSABLE_NAME),
        ({}, {**VERIFIED, "email": ["ada@example.test"]}, RefusalReason.UNUSABLE_NAME),
        ({"usernameClaim": "sub"}, {"sub": "x" * 254}, RefusalReason.UNUSABLE_NAME),
        (
            {"usernameClaim": "sub", "usernamePrefix": "p"},
            {"sub": "x" * 253},
            RefusalReason.UNUSABLE_NAME,
        ),
        ({"usernameClaim": "age"}, {"age": 7}, RefusalReason.UNUSABLE_NAME),
        ({"usernameClaim": "age"}, {"age": True}, RefusalReason.UNUSABLE_NAME),
    ],
)
def test_another_claim_names_nobody(
    settings: dict[str, Any], claims: dict[str, Any], reason: RefusalReason
) -> None:
    with pytest.raises(SignInRefused) as refused:
        user_of(claims, settings_with(**settings))
    assert refused.value.reason is reason
    assert "ada" not in refused.value.detail


@pytest.mark.parametrize(
    ("claims", "claim", "enough"),
    [
        (VERIFIED, "email", True),
        ({**VERIFIED, "email_verified": False}, "email", True),
        ({"email": "ada@example.test"}, "email", False),
        ({"email_verified": True}, "email", False),
        ({"email": None, "email_verified": True}, "email", False),
        ({"oid": "7"}, "oid", True),
        ({}, "oid", False),
    ],
)
def test_an_address_and_its_verification_come_from_one_place(
    claims: dict[str, Any], claim: str, *, enough: bool
) -> None:
    assert says_enough(claims, claim) is enough


@pytest.mark.parametrize("reason", list(RefusalReason))
def test_every_reason_has_a_sentence(reason: RefusalReason) -> None:
    told = sentence(reason.value, "Acme {0} SSO")
    assert told.endswith(".")
    assert "{name}" not in told


@pytest.mark.parametrize("word", ["", "BUSY", "<script>", "not-begun "])
def test_other_words_have_none(word: str) -> None:
    assert not sentence(word, "Acme SSO")
