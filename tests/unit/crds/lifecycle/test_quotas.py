"""How many objects an organization may have, and the counts of its ResourceQuota."""

from pathlib import Path

import yaml

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
    counts = quota_counts(Limits(containers=2, domains=9), DEFAULTS, counted=True)
    assert counts["count/secrets.cloister.dev"] == 7
    assert counts["count/sshkeys.cloister.dev"] == 6
    assert counts["count/domains.cloister.dev"] == 9
    assert not {each for each in counts if "enclaves" in each or "registrycredentials" in each}


def test_kinds_that_the_cluster_does_not_count_yet_are_in_it_only_where_limited() -> None:
    counts = quota_counts(Limits(containers=2), DEFAULTS, counted=False)
    assert set(counts) == {"count/secrets"}
    limits = Limits(containers=2, secrets=0, ssh_keys=6, domains=9)
    counts = quota_counts(limits, DEFAULTS, counted=False)
    assert counts.pop("count/secrets") == 6 * 2 + 50
    assert counts == {
        "count/secrets.cloister.dev": 0,
        "count/sshkeys.cloister.dev": 6,
        "count/domains.cloister.dev": 9,
    }


def test_the_operator_has_room_for_what_the_organization_may_have() -> None:
    for containers in (0, 1, 10, 1000):
        counts = quota_counts(Limits(containers=containers), DEFAULTS, counted=True)
        # Each may be replaced, and each Enclave has a snapshot.
        assert counts["count/containers.cloister.dev"] > 2 * containers
        assert counts["count/deployments.cloister.dev"] > counts["count/containers.cloister.dev"]
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


def test_the_quota_of_the_operators_namespace_names_what_quotas_count() -> None:
    path = Path(__file__).parents[4] / "crds" / "manifests" / "roles" / "operator.yaml"
    (quota,) = (
        each for each in yaml.safe_load_all(path.read_text()) if each["kind"] == "ResourceQuota"
    )
    counts = quota_counts(Limits(), DEFAULTS, counted=True)
    assert {*quota["spec"]["hard"], "count/secrets"} == set(counts)
