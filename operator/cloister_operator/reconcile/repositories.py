"""What belongs to one repository, in whichever spellings the source takes for the same."""

from collections.abc import Iterator

from cloister_crds.kinds import Container, Deployment
from cloister_operator.cache.projections import CONTAINER, DEPLOYMENT, repo_index
from cloister_operator.context import ProcessContext

__all__ = ["containers_of", "deployment_of"]


def containers_of(context: ProcessContext, namespace: str, repo: str) -> Iterator[Container]:
    """Yield the Containers of a repository."""
    for entry in context.store.by_index(CONTAINER, "repo", repo_index(namespace, repo)):
        container = context.models.read(Container, entry)
        if context.decision.repositories.same(container.spec.repo, repo):
            yield container


def deployment_of(context: ProcessContext, namespace: str, repo: str) -> Deployment | None:
    """Return the Deployment of a repository, of several the first by name; None = there is none."""
    entries = context.store.by_index(DEPLOYMENT, "repo", repo_index(namespace, repo))
    found = (context.models.read(Deployment, entry) for entry in entries)
    own = (each for each in found if context.decision.repositories.same(each.spec.repo, repo))
    return min(own, key=lambda each: each.metadata.name, default=None)
