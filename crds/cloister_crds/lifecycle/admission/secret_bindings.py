"""Binding of a file's secrets: which csec, and which key of which core Secret, has each value.

The rule (spec 24.9; one for the facade's checks, the decision and the snapshot): the repository's
own secret of that name, else an organization secret that the Container binds.
"""

from collections.abc import Iterable

from cloister_crds.config.model import ServiceConfig
from cloister_crds.kinds.container import Container
from cloister_crds.kinds.secret import Secret
from cloister_crds.lifecycle.state.observed import SecretRefKey

__all__ = ["bind", "bound_by", "named_secrets"]


def named_secrets(config: ServiceConfig) -> tuple[str, ...]:
    """Return every name of a secret in a file once, ordered."""
    return tuple(sorted({name for each in config.containers for name in each.secrets}))


def bind(
    names: Iterable[str], *, repo: str, bound: Iterable[str], secrets: Iterable[Secret]
) -> tuple[tuple[SecretRefKey, ...], tuple[str, ...]]:
    """Find the values of secrets.

    Parameters
    ----------
    names
        Names in the file.
    repo
        Repository of the file, ``owner/name``.
    bound
        Names of organization secrets that the Container binds (spec.secrets).
    secrets
        All Secrets (csec) of the namespace.

    Returns
    -------
    tuple[tuple[SecretRefKey, ...], tuple[str, ...]]
        The secrets that were found, ordered by name, and the names that were not.
    """
    of_repo = {each.spec.name: each for each in secrets if each.spec.repo == repo}
    of_organization = {each.spec.name: each for each in secrets if each.spec.repo is None}
    allowed = frozenset(bound)
    found, missing = [], []
    for name in sorted(set(names)):
        secret = of_repo.get(name) or (of_organization.get(name) if name in allowed else None)
        if secret is None:
            missing.append(name)
        else:
            reference = secret.spec.secret_ref
            found.append(SecretRefKey(name=name, secret=reference.name, key=reference.key))
    return tuple(found), tuple(missing)


def bound_by(secret: Secret, containers: Iterable[Container]) -> tuple[str, ...]:
    """Return the names of the Containers that bind a Secret, ordered, each once.

    An organization secret is bound by name. A repository secret belongs to all Containers of its
    repository, whether or not their files name it.
    """
    spec = secret.spec
    return tuple(
        sorted(
            {
                each.display_name
                for each in containers
                if (spec.repo == each.spec.repo if spec.repo else spec.name in each.spec.secrets)
            }
        )
    )
