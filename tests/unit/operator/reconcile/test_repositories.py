"""What belongs to a repository in the operator's cache."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloister_operator.cache.projections import CONTAINER, DEPLOYMENT
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.results import containers_of, deployment_of
from tests.support.builders.process import process_context

SPELLINGS = {"one": "acme/web", "two": "Acme/Web", "three": "acme/other"}


@pytest.fixture
async def context(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ProcessContext]:
    """Provide the parts of a process with Containers and Deployments of all spellings."""
    base = str(tmp_path) if request.param == "git" else "https://forge.example.org"
    made = process_context(base, kind=request.param)
    for name, repo in SPELLINGS.items():
        metadata = {"name": name, "namespace": "org-acme", "uid": name, "resourceVersion": "1"}
        container = {"repo": repo, "tag": "v1"}
        made.store.put(CONTAINER, {"metadata": metadata, "spec": container, "status": {}})
        made.store.put(DEPLOYMENT, {"metadata": metadata, "spec": {"repo": repo}, "status": {}})
    yield made
    await made.aclose()


@pytest.mark.spec("7.1")
@pytest.mark.parametrize(
    ("context", "want"), [("git", ["two"]), ("gitea", ["one", "two"])], indirect=["context"]
)
async def test_the_source_says_whether_spellings_are_one(
    context: ProcessContext, want: list[str]
) -> None:
    found = containers_of(context, "org-acme", "Acme/Web")
    assert sorted(each.metadata.name for each in found) == want
    deployment = deployment_of(context, "org-acme", "Acme/Web")
    assert deployment is not None
    assert deployment.metadata.name == want[0]
    assert deployment_of(context, "org-acme", "acme/no-such") is None
