"""Secrets of a file: their values, which csec binds each, and the credentials of images."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum

from cloister_crds.config.limits import secret_is_file
from cloister_crds.config.model import ServiceConfig
from cloister_crds.kinds.container import Container, ContainerSpec
from cloister_crds.kinds.organization import Organization
from cloister_crds.kinds.registrycredential import RegistryCredential
from cloister_crds.kinds.secret import Secret, SecretSpec
from cloister_crds.lifecycle.request import bound_secrets
from cloister_crds.lifecycle.state.observed import SecretRefKey
from cloister_crds.names import RepositoryNames
from cloister_crds.problems import Problem, Severity

__all__ = [
    "MOST_VARIABLE_BYTES",
    "SecretOwner",
    "bind",
    "binding_problems",
    "bound_by",
    "excluded_by",
    "excludes",
    "named_secrets",
    "pull_credentials",
    "secret_owners",
    "value_error",
]

MOST_VARIABLE_BYTES = 128 * 1024
"""Most bytes of one variable as it is passed to a program: ``NAME=value`` and a closing NUL.

Source: execve(2), MAX_ARG_STRLEN (32 pages of 4 KiB).
"""


def value_error(name: str, value: bytes) -> str | None:
    """Return why a secret cannot have a value.

    Parameters
    ----------
    name
        Name of the secret as configuration files write it; one that cannot name a variable is
        delivered as a file and takes every value.

    Returns
    -------
    str | None
        What follows the field's name in a sentence, without anything of the value; None when it
        can have it.
    """
    if secret_is_file(name):
        return None
    remedy = "or give the secret a name with a hyphen, such as tls-key, to have it as a file"
    if b"\x00" in value:
        return (
            f"contains the character NUL and becomes the environment variable {name}, which "
            f"cannot: leave it out, {remedy}"
        )
    most = MOST_VARIABLE_BYTES - len(f"{name}=".encode()) - 1
    if len(value) > most:
        return (
            f"has {len(value)} bytes; at most {most} fit into the environment variable {name} "
            f"that it becomes: shorten it, {remedy}"
        )
    return None


def pull_credentials(
    organization: Organization | None, credentials: Iterable[RegistryCredential]
) -> tuple[SecretRefKey, ...]:
    """Return the keys of core Secrets with the credentials that an organization may use.

    Parameters
    ----------
    organization
        The Organization; without the entitlement privateRegistries it may use none.

    Returns
    -------
    tuple[SecretRefKey, ...]
        Ordered by registry, which is the name of each.
    """
    if organization is None or not organization.spec.entitlements.private_registries:
        return ()
    return tuple(
        sorted(
            SecretRefKey(
                name=each.spec.registry.value,
                secret=each.spec.secret_ref.name,
                key=each.spec.secret_ref.key,
            )
            for each in credentials
        )
    )


class SecretOwner(StrEnum):
    """Who has a secret that a file names."""

    REPOSITORY = "repository"
    """The repository of the file; it needs no binding."""
    ORGANIZATION = "organization"
    """The organization; the Container must bind it."""
    NOBODY = "missing"
    """It must be created."""


def named_secrets(config: ServiceConfig) -> tuple[str, ...]:
    """Return every name of a secret in a file once, ordered."""
    return tuple(sorted({name for each in config.containers for name in each.secrets}))


def bind(
    names: Iterable[str],
    *,
    repo: str,
    bound: Iterable[str],
    secrets: Iterable[Secret],
    repositories: RepositoryNames,
) -> tuple[tuple[SecretRefKey, ...], tuple[str, ...]]:
    """Find the values of secrets.

    Parameters
    ----------
    repo
        Repository of the file, ``owner/name``.
    bound
        Names of organization secrets that the Container binds (spec.secrets).

    Returns
    -------
    tuple[tuple[SecretRefKey, ...], tuple[str, ...]]
        The secrets that were found, ordered by name, and the names that were not.
    """
    of_repo, of_organization = _by_name(repo, secrets, repositories)
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


def excludes(
    present: SecretSpec, name: str, repo: str | None, repositories: RepositoryNames
) -> bool:
    """Return whether a secret excludes another one of a name (spec 8.3).

    Of one name there may be one of each repository, or one of the organization.

    Parameters
    ----------
    repo
        Its repository; None if it is the organization's.
    """
    if present.name != name:
        return False
    return present.repo is None or repo is None or repositories.same(present.repo, repo)


def excluded_by(
    secret: Secret, secrets: Iterable[Secret], repositories: RepositoryNames
) -> Secret | None:
    """Return the older Secret of a namespace that excludes one; None if it counts."""
    spec = secret.spec
    same_name = (each for each in secrets if each.spec.name == spec.name)
    for each in _effective(same_name, repositories):
        if each.metadata.name == secret.metadata.name:
            return None
        if excludes(each.spec, spec.name, spec.repo, repositories):
            return each
    return None


def _effective(secrets: Iterable[Secret], repositories: RepositoryNames) -> list[Secret]:
    """Return the secrets that no older one excludes, oldest first."""
    found: dict[str, list[Secret]] = {}
    for each in sorted(secrets, key=_age):
        older = found.setdefault(each.spec.name, [])
        spec = each.spec
        if not any(excludes(one.spec, spec.name, spec.repo, repositories) for one in older):
            older.append(each)
    return [each for same_name in found.values() for each in same_name]


def _age(secret: Secret) -> tuple[datetime, str]:
    """Return what orders secrets by age, and those of one second by name."""
    metadata = secret.metadata
    return metadata.creation_timestamp or datetime.max.replace(tzinfo=UTC), metadata.name


def _by_name(
    repo: str, secrets: Iterable[Secret], repositories: RepositoryNames
) -> tuple[dict[str, Secret], dict[str, Secret]]:
    """Return the secrets of a repository and those of the organization, by name."""
    of_repo: dict[str, Secret] = {}
    of_organization: dict[str, Secret] = {}
    for each in _effective(secrets, repositories):
        if each.spec.repo is None:
            of_organization[each.spec.name] = each
        elif repositories.same(each.spec.repo, repo):
            of_repo[each.spec.name] = each
    return of_repo, of_organization


def secret_owners(
    config: ServiceConfig, *, repo: str, secrets: Iterable[Secret], repositories: RepositoryNames
) -> dict[str, SecretOwner]:
    """Return who has each secret that a file names, whether it is bound or not.

    Parameters
    ----------
    config
        The parsed file.
    repo
        Repository of the file, ``owner/name``.
    """
    of_repo, of_organization = _by_name(repo, secrets, repositories)

    def owner(name: str) -> SecretOwner:
        if name in of_repo:
            return SecretOwner.REPOSITORY
        return SecretOwner.ORGANIZATION if name in of_organization else SecretOwner.NOBODY

    return {name: owner(name) for name in named_secrets(config)}


def binding_problems(
    config: ServiceConfig,
    spec: ContainerSpec,
    secrets: tuple[Secret, ...],
    *,
    final: bool,
    repositories: RepositoryNames,
) -> Iterator[Problem]:
    """Yield what is wrong between the secrets that a file names and those that a spec binds.

    Parameters
    ----------
    spec
        Spec of the Container.
    final
        Whether spec.secrets is all that will be bound; else what is not bound yet is a warning.
    """
    names = named_secrets(config)
    _, missing = bind(
        names, repo=spec.repo, bound=spec.secrets, secrets=secrets, repositories=repositories
    )
    of_organization = {each.spec.name for each in secrets if each.spec.repo is None}
    for index, container in enumerate(config.containers):
        for place, name in enumerate(container.secrets):
            field = f"containers[{index}].secrets[{place}]"
            if name not in missing:
                continue
            if name in of_organization:
                yield Problem(
                    field,
                    "SecretNotBound",
                    f"Secret {name!r} of container {container.name} is a secret of the "
                    f"organization and not bound; add {name!r} to spec.secrets.",
                    severity=Severity.ERROR if final else Severity.WARNING,
                )
            else:
                yield Problem(
                    field,
                    "SecretNotFound",
                    f"Secret {name!r} of container {container.name} is neither a secret of "
                    f"{spec.repo} nor one of the organization; create it.",
                )
    for index, name in enumerate(spec.secrets):
        if name not in names:
            yield Problem(
                f"spec.secrets[{index}]",
                "UnusedSecret",
                f"No container of the file uses the secret {name!r}.",
                severity=Severity.WARNING,
            )


def bound_by(
    secret: Secret, containers: Iterable[Container], repositories: RepositoryNames
) -> tuple[Container, ...]:
    """Return the Containers of a namespace that use a Secret, by name."""
    users = (each for each in containers if _is_used(secret, each, repositories))
    return tuple(sorted(users, key=lambda each: each.metadata.name))


def _is_used(secret: Secret, container: Container, repositories: RepositoryNames) -> bool:
    """Return whether a Container uses a Secret.

    An organization secret is used by those that bind it. A repository secret is used by those of
    the repository that bind it or whose file names it, and as long as a file is not known, it may.
    """
    spec, named = secret.spec, container.status.secrets
    bound = spec.name in bound_secrets(container)
    if spec.repo is None:
        return bound
    if not repositories.same(spec.repo, container.spec.repo):
        return False
    return bound or named is None or spec.name in named
