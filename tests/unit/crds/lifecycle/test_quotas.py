"""How many objects an organization may have, and the counts of its ResourceQuota."""

from cloister_crds.installation import DefaultLimits
from cloister_crds.kinds.organization import Limits, OrganizationCounts
from cloister_crds.lifecycle.admission.quotas import (
    above_limits,
    effective_limits,
    quota_counts,
    quota_reached,
)

DEFAULTS = DefaultLimits(secrets=7, ssh_keys=6, domains=5, api_keys=4, admin_keys=3)


def test_an_organization_has_the_defaults_where_it_names_nothing() -> None:
    assert effective_limits(Limits(), DEFAULTS) == DEFAULTS
    named = effective_limits(Limits(secrets=0, api_keys=50), DEFAULTS)
    assert named == DEFAULTS.model_copy(update={"secrets": 0, "api_keys": 50})


def test_the_quota_counts_what_tenants_create() -> None:
    """Of our kinds those that the Organization limits: others must not wait for a count."""
    assert set(quota_counts(Limits(containers=2), DEFAULTS)) == {"count/secrets"}
    counts = quota_counts(Limits(containers=2, secrets=0, ssh_keys=6, domains=9), DEFAULTS)
    assert counts.pop("count/secrets") == 6 * 2 + 50
    assert counts == {
        "count/secrets.cloister.dev": 0,
        "count/sshkeys.cloister.dev": 6,
        "count/domains.cloister.dev": 9,
    }


def test_the_operator_has_room_for_what_the_organization_may_have() -> None:
    for containers in (0, 1, 10, 1000):
        counts = quota_counts(Limits(containers=containers), DEFAULTS)
        # Each may be replaced, and each Enclave has a snapshot.
        assert counts["count/secrets"] >= DEFAULTS.secrets + 6 * containers + 3


def test_what_exists_above_a_limit_is_named() -> None:
    counts = OrganizationCounts(containers=3, secrets=8, ssh_keys=6, domains=0)
    assert above_limits(Limits(containers=2), DEFAULTS, counts) == {
        "containers": (3, 2),
        "secrets": (8, 7),
    }
    assert not above_limits(Limits(containers=3, secrets=8), DEFAULTS, counts)


def test_a_refusal_names_the_limit_the_number_in_use_and_the_remedy() -> None:
    assert quota_reached("secrets", 8, 7) == (
        "quota reached: the organization has 8 secrets and may have 7; delete one or ask the "
        "administrator for more"
    )
