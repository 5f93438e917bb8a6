"""The status of a Secret: its value, its users, when it was written."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cloister_crds.kinds import Container, Secret
from cloister_crds.lifecycle.admission.secrets import bind, bound_by, excluded_by
from cloister_crds.names import RepositoryNames
from cloister_operator.reconcile.credentials import (
    looked_at_again,
    name_taken,
    value_finding,
    written_at,
)
from cloister_operator.reconcile.results import DONE, Result
from tests.support.builders.resources import organization_of


def secret(*, repo: str | None = None) -> Secret:
    spec: dict[str, Any] = {"name": "API_KEY", "secretRef": {"name": "values", "key": "api"}}
    return Secret.read({"metadata": {"name": "s"}, "spec": spec | ({"repo": repo} if repo else {})})


def aged(name: str, second: int, *, repo: str | None = None) -> Secret:
    """Return a Secret of that name of its object, created in a second."""
    found = secret(repo=repo)
    created = {"name": name, "creation_timestamp": datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)}
    return found.model_copy(update={"metadata": found.metadata.model_copy(update=created)})


def container(
    name: str,
    *,
    repo: str = "acme/web",
    secrets: tuple[str, ...] = (),
    named: tuple[str, ...] | None = (),
) -> Container:
    """Return a Container that binds secrets, and whose file names some; None = not known."""
    spec = {"repo": repo, "tag": "v1", "secrets": list(secrets)}
    status = {} if named is None else {"secrets": list(named)}
    return Container.read({"metadata": {"name": name}, "spec": spec, "status": status})


def names_of(containers: Iterable[Container]) -> list[str]:
    return [each.metadata.name for each in containers]


@pytest.mark.spec("24.7")
def test_an_organization_secret_is_used_by_those_that_bind_it() -> None:
    containers = [
        container("b", secrets=("API_KEY",)),
        container("a", secrets=("OTHER", "API_KEY")),
        container("c", secrets=("OTHER",)),
    ]
    assert names_of(bound_by(secret(), containers, RepositoryNames())) == ["a", "b"]


def test_of_secrets_that_exclude_each_other_the_oldest_counts() -> None:
    exact = RepositoryNames()
    own, late, twin = aged("own", 1), aged("late", 2, repo="a/b"), aged("a-twin", 2, repo="a/b")
    for order in ([own, late, twin], [twin, late, own]):
        assert excluded_by(own, order, exact) is None
        assert excluded_by(late, order, exact) == own
        assert excluded_by(twin, order, exact) == own
        for bound, found in ((["API_KEY"], 1), ([], 0)):
            refs, missing = bind(
                ["API_KEY"], repo="a/b", bound=bound, secrets=order, repositories=exact
            )
            assert (len(refs), len(missing)) == (found, 1 - found)
    # Without the organization's the repository's count; of one second the first by name.
    assert excluded_by(late, [late, twin], exact) == twin
    assert excluded_by(twin, [late, twin], exact) is None
    other = aged("other", 3, repo="a/c")
    assert excluded_by(other, [late, twin, other], exact) is None
    condition = name_taken(late, twin)
    assert (condition.status, condition.reason) == (False, "SecretNameTaken")
    assert "a-twin is a secret of a/b" in condition.message


@pytest.mark.spec("7.1", "24.7")
def test_a_repository_secret_is_used_by_containers_whose_file_names_it() -> None:
    containers = [
        container("a", named=("API_KEY", "OTHER")),
        container("b", named=("OTHER",)),
        container("binds", secrets=("API_KEY",)),
        container("unknown", named=None),
        container("elsewhere", repo="acme/other", secrets=("API_KEY",), named=("API_KEY",)),
    ]
    exact, folded = RepositoryNames(), RepositoryNames(ignore_case=True)
    users = ["a", "binds", "unknown"]
    assert names_of(bound_by(secret(repo="acme/web"), containers, exact)) == users
    assert names_of(bound_by(secret(repo="Acme/Web"), containers, exact)) == []
    assert names_of(bound_by(secret(repo="Acme/Web"), containers, folded)) == users


@pytest.mark.parametrize(
    ("core", "want_ready", "want_text"),
    [
        (None, False, "no core Secret values"),
        ({"metadata": {}}, False, "no key api"),
        ({"metadata": {}, "data": {"other": ""}}, False, "no key api"),
        ({"metadata": {}, "data": {"api": "eA=="}}, True, "is there"),
        ({"metadata": {}, "data": {"api": "eAB4"}}, False, "NUL"),
        ({"metadata": {}, "data": {"api": "eHh4" * 43_700}}, False, "at most 131063"),
    ],
    ids=["no secret", "no data", "no key", "found", "nul", "long"],
)
def test_the_value_of_a_secret_is_checked(
    core: dict[str, Any] | None, *, want_ready: bool, want_text: str
) -> None:
    finding = value_finding(secret(), organization_of(), core)
    assert finding.status is want_ready
    assert want_text in finding.message
    assert finding.reason in {
        "ValueFound" if want_ready else "SecretValueMissing",
        "SecretValueUnusable" if core and "api" in core.get("data", {}) else "",
    }


@pytest.mark.parametrize(
    ("written", "core", "want"),
    [
        (DONE, {"metadata": {}, "data": {"api": "eA=="}}, None),
        (DONE, None, timedelta(minutes=1)),
        (Result(wrote=True), {"metadata": {}}, timedelta(minutes=1)),
        (Result(timedelta(seconds=2)), None, timedelta(seconds=2)),
        (Result(timedelta(hours=1)), None, timedelta(minutes=1)),
    ],
    ids=["found", "no secret", "no key", "a throttled write", "a late one"],
)
def test_a_value_that_is_missing_is_looked_for_again(
    written: Result, core: dict[str, Any] | None, want: timedelta | None
) -> None:
    finding = value_finding(secret(), organization_of(), core)
    again = looked_at_again(written, finding, timedelta(minutes=1))
    assert again == Result(want, wrote=written.wrote)


@pytest.mark.spec("8.1")
def test_the_newest_write_of_a_core_secret_counts() -> None:
    metadata = {
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"time": "2026-01-02T00:00:00Z"}, {"time": "2026-01-03T00:00:00Z"}, {}],
    }
    assert written_at({"metadata": metadata}) == datetime(2026, 1, 3, tzinfo=UTC)
    assert written_at({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}) == datetime(
        2026, 1, 1, tzinfo=UTC
    )
    assert written_at({"metadata": {}}) is None
