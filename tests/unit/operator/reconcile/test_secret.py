"""The status of a Secret: its value, its users, when it was written."""

from datetime import UTC, datetime
from typing import Any

import pytest

from cloister_crds.kinds import Container, Secret
from cloister_crds.lifecycle.admission.secret_bindings import bound_by
from cloister_operator.reconcile.secret import value_finding, written_at


def secret(*, repo: str | None = None) -> Secret:
    spec: dict[str, Any] = {"name": "API_KEY", "secretRef": {"name": "values", "key": "api"}}
    return Secret.read({"metadata": {"name": "s"}, "spec": spec | ({"repo": repo} if repo else {})})


def container(name: str, *, repo: str = "acme/web", secrets: tuple[str, ...] = ()) -> Container:
    spec = {"repo": repo, "tag": "v1", "secrets": list(secrets)}
    return Container.read({"metadata": {"name": name}, "spec": spec})


def test_an_organization_secret_is_used_by_those_that_bind_it() -> None:
    containers = [
        container("b", secrets=("API_KEY",)),
        container("a", secrets=("OTHER", "API_KEY")),
        container("c", secrets=("OTHER",)),
    ]
    assert bound_by(secret(), containers) == ("a", "b")


def test_a_repository_secret_is_used_by_the_containers_of_its_repository() -> None:
    containers = [container("a"), container("b", repo="acme/other", secrets=("API_KEY",))]
    assert bound_by(secret(repo="acme/web"), containers) == ("a",)


@pytest.mark.parametrize(
    ("core", "want_ready", "want_text"),
    [
        (None, False, "no core Secret values"),
        ({"metadata": {}}, False, "no key api"),
        ({"metadata": {}, "data": {"other": ""}}, False, "no key api"),
        ({"metadata": {}, "data": {"api": "eA=="}}, True, "is there"),
    ],
)
def test_the_value_of_a_secret_is_checked(
    core: dict[str, Any] | None, *, want_ready: bool, want_text: str
) -> None:
    finding = value_finding(secret(), core)
    assert finding.status is want_ready
    assert want_text in finding.message
    assert finding.reason == ("ValueFound" if want_ready else "SecretValueMissing")


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
