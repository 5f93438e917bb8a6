"""The order of releases that were published in one second."""

from datetime import UTC, datetime, timedelta

from cloister_crds.lifecycle.state.release_order import release_order, version_order

AT = datetime(2026, 11, 28, tzinfo=UTC)
ASCENDING = (
    "v1.0.0-alpha",
    "1.0.0-alpha.1",
    "v1.0.0-alpha.beta",
    "v1.0.0-beta.2",
    "v1.0.0-beta.11",
    "v1.0.0-rc.1",
    "v1.0.0",
    "v1.0.1",
    "1.2.0",
    "v1.9.0",
    "v1.10.0",
    "v2.0.0-rc.1",
    "v2.0.0",
)
"""Versions in the order of semver.org, section 11, with and without a leading v."""


def test_semantic_versions_have_their_order() -> None:
    assert tuple(sorted(set(ASCENDING), key=version_order)) == ASCENDING


def test_other_tags_are_ordered_by_their_numbers() -> None:
    tags = ["release-2", "release-10", "v1.9", "v1.10", "v1.10.0.1"]
    assert sorted(tags[:2], key=version_order) == tags[:2]
    assert sorted(tags[2:], key=version_order) == tags[2:]
    assert version_order("v1.0") == version_order("1.0")


def test_the_time_counts_before_the_version() -> None:
    later = AT + timedelta(seconds=1)
    assert release_order(AT, "v2.0.0") < release_order(later, "v1.0.0")
    assert release_order(AT, "v1.0.0") < release_order(AT, "v1.1.0")
