"""Cleanup: claims of host names that nothing needs any more."""

from cloister_operator.rollout.cleanup import unneeded_claims
from cloister_operator.rollout.decision import ReleaseHostname
from tests.support.builders.resources import claim_of, container_of


def test_only_own_claims_that_nobody_needs_are_released() -> None:
    claims = {
        "needed.example.test": claim_of("needed.example.test"),
        "old.example.test": claim_of("old.example.test"),
        "leaving.example.test": claim_of("leaving.example.test", deleting=True),
        "other.example.test": claim_of("other.example.test", holder="other"),
    }
    released = unneeded_claims(container_of(), claims, ["needed.example.test"])
    assert released == (ReleaseHostname("old.example.test", "claim-old.example.test", "3"),)
