"""Names that follow from other names.

Child objects, host names; how names of repositories compare.
"""

import re
from base64 import b32encode
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import count

__all__ = [
    "ACCOUNT",
    "AUDIENCES",
    "CONTAINER_ANNOTATION",
    "CONTAINER_LABEL",
    "ENCLAVE_LABEL",
    "MANAGED_BY",
    "MANAGED_BY_LABEL",
    "ORGANIZATION_LABEL",
    "RESTORES_ANNOTATION",
    "RESTORE_HOLDER",
    "SHELLS_LABEL",
    "VALUE_LABEL",
    "RepositoryNames",
    "challenge_name",
    "config_map_name",
    "deployment_name",
    "distinct_label",
    "enclave_name",
    "generated_hostname",
    "gpu_claim_name",
    "host_label",
    "object_name",
    "object_names",
    "preview_hostname",
    "preview_service_name",
    "registry_secret_name",
    "secret_object_name",
    "secret_value_name",
    "service_name",
    "shells_service_name",
    "short_hash",
    "snapshot_name",
    "token_audience",
]


@dataclass(frozen=True, slots=True)
class RepositoryNames:
    """How names of repositories are compared; they are shown as they were written."""

    ignore_case: bool = False
    """Whether ``Acme/web`` and ``acme/web`` are one repository, as at GitHub and Gitea."""

    def key(self, repo: str) -> str:
        """Return what all names of one repository have in common."""
        return repo.lower() if self.ignore_case else repo

    def same(self, one: str, other: str) -> bool:
        """Return whether two names are those of one repository."""
        return self.key(one) == self.key(other)


ORGANIZATION_LABEL = "cloister.dev/organization"
"""Label with the slug of the Organization (as `distinct_label` writes it)."""
CONTAINER_LABEL = "cloister.dev/container"
"""Label with the Container that an object belongs to (as `service_name` writes it)."""
CONTAINER_ANNOTATION = "cloister.dev/container-name"
"""Annotation of a TLSRoute: ``namespace/name`` of its Container, which is in another namespace."""
SHELLS_LABEL = "cloister.dev/ssh"
"""Label of the Pods of debug enclaves that let people in; its value says nothing."""
ENCLAVE_LABEL = "cloister.dev/enclave"
"""Label with the Enclave that an object belongs to."""
RESTORE_HOLDER = "cloister-restore"
"""Holder of the operator's Lease until a restore is complete."""
RESTORES_ANNOTATION = "cloister.dev/restores"
"""Annotation of that Lease: the digest of the archive that is being restored."""
VALUE_LABEL = "cloister.dev/value-of"
"""Label of a core Secret that the facade made: its value is for a ``secret`` or a ``registry``."""
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
"""Label with the program that looks after an object."""
MANAGED_BY = "cloister"
"""Value of `MANAGED_BY_LABEL` on what Cloister makes."""

HASH_LENGTH = 10
"""Characters of a hash in a name: 50 bits."""
LABEL_LIMIT = 63
"""Longest DNS label (RFC 1035, "Size limits")."""
SUBDOMAIN_LIMIT = 253
"""Longest name of an object (Kubernetes, "Object Names and IDs")."""
ENCLAVE_PREFIX_LIMIT = 44
"""Longest part of an Enclave's name that comes from its Container: leaves room for a revision of
ten characters, two hyphens and an attempt of up to seven digits in a DNS label."""

_HASHED = re.compile(rf"--[a-z2-7]{{{HASH_LENGTH}}}$")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LOWER_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def short_hash(text: str) -> str:
    """Hash a text into characters that may be anywhere in a DNS label.

    Returns
    -------
    str
        Ten characters of ``a-z2-7``.
    """
    return b32encode(sha256(text.encode()).digest()).decode().lower()[:HASH_LENGTH]


def _fit(name: str, *, limit: int, keep: re.Pattern[str], prefix: str) -> str:
    if len(name) <= limit and keep.fullmatch(name) and not _HASHED.search(name):
        return name
    return _hashed(name, limit=limit, keep=keep, prefix=prefix)


def _hashed(name: str, *, limit: int, keep: re.Pattern[str], prefix: str) -> str:
    suffix = f"--{short_hash(name)}"
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not keep.fullmatch(readable):
        readable = f"{prefix}{readable}"
    return readable[: limit - len(suffix)].rstrip("-") + suffix


def host_label(name: str) -> str:
    """Return the label of a host name for a container or an organization.

    Clients build host names of names by themselves, so every name that is a DNS label is its own
    label. Only a container's name of 64 characters is not: it is cut and gets a hash. Another
    container may be named like that; who has the HostnameClaim has the host name.

    Parameters
    ----------
    name
        Name of the container (spec.name) or slug of the organization.

    Returns
    -------
    str
        A DNS label of at most 63 characters; a leading digit stays (RFC 1123).
    """
    if len(name) <= LABEL_LIMIT and _LABEL.fullmatch(name):
        return name
    return _hashed(name, limit=LABEL_LIMIT, keep=_LABEL, prefix="x")


def distinct_label(name: str) -> str:
    """Return a DNS label of a name that no other name has: the value of `ORGANIZATION_LABEL`.

    Labels of host names were made like this before `host_label`.
    """
    return _fit(name, limit=LABEL_LIMIT, keep=_LABEL, prefix="x")


def generated_hostname(
    name: str,
    *,
    organization: str,
    debug: bool,
    containers_domain: str,
    label: Callable[[str], str] = host_label,
) -> str:
    """Return the host name that a container has without a custom domain.

    The form is that of spec 4.2: debug containers have a level of their own, so that a production
    and a debug container may share a name.

    Parameters
    ----------
    name
        Name of the container (spec.name, else metadata.name).
    label
        Makes the labels of the container and of the organization.

    Returns
    -------
    str
        The host name in lower case.
    """
    labels = [label(name), *(["debug"] if debug else []), label(organization)]
    return ".".join([*labels, containers_domain])


def preview_hostname(
    name: str,
    *,
    organization: str,
    debug: bool,
    containers_domain: str,
    label: Callable[[str], str] = host_label,
) -> str:
    """Return the host name at which a staged update can be tried before it is promoted.

    It is below a level of its own, where no container name leads: they hold no dots.

    Parameters
    ----------
    name
        Name of the container (spec.name, else metadata.name).
    label
        Makes the labels of the container and of the organization.
    """
    level = "preview.debug" if debug else "preview"
    return f"{label(name)}.{level}.{label(organization)}.{containers_domain}"


def service_name(container: str) -> str:
    """Return the name of a Container's Service; it is also the value of `CONTAINER_LABEL`.

    Returns
    -------
    str
        A DNS label that begins with a letter (RFC 1035), as Services need it.
    """
    return _fit(container, limit=LABEL_LIMIT, keep=_LOWER_LABEL, prefix="c")


def preview_service_name(container: str) -> str:
    """Return the name of the Service of a Container's staged update.

    Returns
    -------
    str
        A DNS label that no Container's own Service has: ``!`` is in no object's name.
    """
    return _fit(f"{container}!preview", limit=LABEL_LIMIT, keep=_LOWER_LABEL, prefix="c")


def shells_service_name(container: str) -> str:
    """Return the name of the Service by which people log in to a Container's debug enclave.

    Returns
    -------
    str
        A DNS label that no Container's own Service has: ``!`` is in no object's name.
    """
    return _fit(f"{container}!ssh", limit=LABEL_LIMIT, keep=_LOWER_LABEL, prefix="c")


def enclave_name(container: str, revision: str, attempt: int) -> str:
    """Return the name of an Enclave, which is also the name of its Pod.

    Parameters
    ----------
    attempt
        Count of the attempts of the revision, from 1.

    Returns
    -------
    str
        A DNS label of at most 63 characters: ``<container>-<revision>-<attempt>``.
    """
    prefix = _fit(container, limit=ENCLAVE_PREFIX_LIMIT, keep=_LOWER_LABEL, prefix="c")
    return f"{prefix}-{revision}-{attempt}"


def config_map_name(enclave: str) -> str:
    """Return the name of the ConfigMap with the file of an Enclave."""
    return f"{enclave}-file"


def snapshot_name(enclave: str) -> str:
    """Return the name of the core Secret with the secret values of an Enclave."""
    return f"{enclave}-secrets"


def gpu_claim_name(enclave: str, number: int) -> str:
    """Return the name of one of the ResourceClaims of an Enclave, which count from 0."""
    return f"{enclave}-gpus-{number}"


def challenge_name(label: str) -> str:
    """Name, relative to a zone of ours, at which control of a custom domain is proven.

    The owner of the domain points `_acme-challenge.<domain>` there, once. The label is in the
    status of the Domain: it differs between organizations.
    """
    return f"{label}.challenges"


def object_names(name: str, *, debug: bool) -> Iterator[str]:
    """Return the metadata names that the facade may give a container, in the order it tries them.

    Container names hold no dots, so that these never meet those of another container.
    """
    first = f"{name}.debug" if debug else name
    yield first
    for number in count(2):
        yield f"{first}.{number}"


def object_name(name: str, *, debug: bool, taken: Collection[str] = ()) -> str:
    """Return the metadata name that the facade gives a container.

    Returns
    -------
    str
        ``<name>`` or ``<name>.debug``, else the first free of ``….2``, ``….3``.
    """
    return next(each for each in object_names(name, debug=debug) if each not in taken)


def deployment_name(repo: str) -> str:
    """Return the name of the Deployment of a repository.

    Parameters
    ----------
    repo
        ``owner/name``, whose upper case counts.

    Returns
    -------
    str
        A DNS label: what can be read of the repository, and a hash of the whole.
    """
    suffix = f"-{short_hash(repo)}"
    slug = re.sub(r"[^a-z0-9]+", "-", repo.lower()).strip("-")
    return f"r-{slug}"[: LABEL_LIMIT - len(suffix)].rstrip("-") + suffix


def secret_object_name(name: str, repo: str | None = None) -> str:
    """Return the name of the Secret (csec) of a name in configuration files.

    ``OPENAI_API_KEY`` and ``openai-api-key`` are two secrets: the first becomes
    ``openai-api-key.env``, and kebab-case names, which hold no dot, stay as they are. A secret of
    a repository has a hash of that behind it, since another repository may have the name too.

    Returns
    -------
    str
        A DNS subdomain of at most 253 characters (RFC 1123).
    """
    if repo is not None:
        full = f"{secret_object_name(name)}.{short_hash(repo)}"
        if len(full) <= SUBDOMAIN_LIMIT:
            return full
        return _fit(f"{name}!{repo}", limit=SUBDOMAIN_LIMIT, keep=_LABEL, prefix="s")
    if re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*", name):
        lowered = name.lower().replace("_", "-")
        if len(lowered) + len(".env") <= SUBDOMAIN_LIMIT:
            return f"{lowered}.env"
    elif re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) and len(name) <= SUBDOMAIN_LIMIT:
        return name
    return _fit(f"{name}!", limit=SUBDOMAIN_LIMIT, keep=_LABEL, prefix="s")


def secret_value_name(secret: str, attempt: str) -> str:
    """Return the name of the core Secret that the facade makes for the value of a Secret (csec).

    Parameters
    ----------
    attempt
        What distinguishes one attempt to create it from all others: the core Secret is there
        before the csec, so that two attempts must not meet in it.
    """
    return _fit(f"{secret}!value {attempt}", limit=SUBDOMAIN_LIMIT, keep=_LABEL, prefix="s")


def registry_secret_name(registry: str) -> str:
    """Return the name of the core Secret that the facade makes for a registry's credentials.

    Parameters
    ----------
    registry
        metadata.name of the RegistryCredential, such as ``ghcr``.
    """
    return _fit(f"{registry}!registry", limit=SUBDOMAIN_LIMIT, keep=_LABEL, prefix="r")


ACCOUNT = "default"
"""ServiceAccount that Pods of enclaves run as; it has no rights, and its tokens grant none."""
AUDIENCES = "certificates.cloister.dev/"
"""What every audience of such tokens begins with; the admission policies name it too."""


def token_audience(enclave_uid: str) -> str:
    """Return the audience of an Enclave's token."""
    return AUDIENCES + enclave_uid
