"""Credentials of an organization for the three registries that can be private.

The facade checks what a user hands in with `credentials_from`; the operator makes the Secret for
image pulls with `docker_config`; `RegistryClient` sends them, to the registry's own hosts only.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from cloister_clients.registry.errors import CredentialsInvalid
from cloister_clients.registry.reference import ImageReference

__all__ = [
    "Credentials",
    "PrivateRegistry",
    "credentials_for",
    "credentials_from",
    "credentials_in",
    "docker_config",
    "registry_of",
]

_UNFIT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
"""What no header can carry: control characters, and halves of characters that have no UTF-8."""
MAX_LENGTH = 16384
"""Longest user name, token or key, in characters."""


class PrivateRegistry(StrEnum):
    """Registries for which an organization can have credentials."""

    GHCR = "ghcr"
    """GitHub's container registry."""
    GCR = "gcr"
    """Google's Container Registry and Artifact Registry."""
    DOCKERHUB = "dockerhub"
    """Docker Hub."""


_HOSTS: dict[PrivateRegistry, tuple[str, ...]] = {
    PrivateRegistry.GHCR: ("ghcr.io",),
    PrivateRegistry.GCR: ("gcr.io", "*.gcr.io", "*.pkg.dev"),
    PrivateRegistry.DOCKERHUB: ("docker.io",),
}

_DOCKER_HUB_KEY = "https://index.docker.io/v1/"
"""Key of Docker Hub in a docker configuration (kubelet's and docker's own constant)."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """User name and password for a registry, and the hosts that may see them."""

    hosts: tuple[str, ...]
    """Registries, as references write them; ``*`` matches one label of the host name."""
    username: str
    """User name."""
    password: str = field(repr=False)
    """Token or key."""

    def fit(self, registry: str) -> bool:
        """Return whether these may be sent to a registry."""
        return any(_matches(registry, pattern) for pattern in self.hosts)


def _matches(registry: str, pattern: str) -> bool:
    """Compare label by label, as kubelet does for image pull secrets."""
    labels, wanted = registry.lower().split("."), pattern.lower().split(".")
    return len(labels) == len(wanted) and all(map(fnmatchcase, labels, wanted))


def registry_of(reference: ImageReference) -> PrivateRegistry | None:
    """Return which credentials an image could need; None: an organization can have none for it."""
    for registry, hosts in _HOSTS.items():
        if any(_matches(reference.registry, host) for host in hosts):
            return registry
    return None


def credentials_for(
    reference: ImageReference, available: Iterable[Credentials]
) -> Credentials | None:
    """Choose the credentials that may be sent for an image; None when none may."""
    return next((each for each in available if each.fit(reference.registry)), None)


def credentials_from(registry: PrivateRegistry, data: Mapping[str, Any]) -> Credentials:
    """Check what a user hands in and build credentials of it.

    Parameters
    ----------
    data
        ``username`` and ``token`` for ghcr and dockerhub, ``key`` (the JSON of a service account,
        as text or object) for gcr (spec 8.19, 24.5).

    Raises
    ------
    CredentialsInvalid
        When a field is missing, too many, or not of its form.
    """
    wanted = {"key"} if registry is PrivateRegistry.GCR else {"username", "token"}
    problems = [
        (name, f"{name} is not a field of {registry} credentials; send {_listed(wanted)}")
        for name in sorted(set(data) - wanted)
    ]
    values: dict[str, str] = {}
    for name in sorted(wanted, reverse=True):
        try:
            values[name] = _READERS[name](registry, data.get(name))
        except CredentialsInvalid as error:
            problems.append((name, str(error)))
    if problems:
        raise CredentialsInvalid("; ".join(text for _, text in problems), problems)
    if registry is PrivateRegistry.GCR:
        return Credentials(_HOSTS[registry], "_json_key", values["key"])
    return Credentials(_HOSTS[registry], values["username"], values["token"])


def _listed(names: Iterable[str]) -> str:
    """Write names for a sentence."""
    return " and ".join(sorted(names, reverse=True))


def _text(name: str, registry: PrivateRegistry, value: Any) -> str:
    """Read one field."""
    if not isinstance(value, str) or not value.strip():
        raise CredentialsInvalid(f"{name} is missing; {registry} credentials need it as text")
    text: str = value.strip()
    if len(text) > MAX_LENGTH or _UNFIT.search(text):
        raise CredentialsInvalid(
            f"{name} is too long or holds control characters or halves of characters"
        )
    return text


def _username(registry: PrivateRegistry, value: Any) -> str:
    """Read the name of a user."""
    name = _text("username", registry, value)
    if ":" in name:
        raise CredentialsInvalid("username must not hold a colon (RFC 7617)")
    return name


def _service_account(_: PrivateRegistry, key: Any) -> str:
    """Check the key of a service account and write it on one line."""
    value = key
    if isinstance(key, str):
        if len(key) > MAX_LENGTH:
            raise CredentialsInvalid("key is too long for the JSON of a service account")
        try:
            value = json.loads(key)
        except (ValueError, RecursionError) as error:
            raise CredentialsInvalid(
                "key is not JSON; send the file of the service account's key as it is"
            ) from error
    if not isinstance(value, dict):
        raise CredentialsInvalid("key is missing; send the JSON of a service account's key")
    if value.get("type") != "service_account":
        raise CredentialsInvalid('key is not of a service account: its "type" says otherwise')
    for name in ("client_email", "private_key"):
        if not isinstance(value.get(name), str) or not value[name]:
            raise CredentialsInvalid(f'key has no "{name}"; send the whole file of the key')
    try:
        text = json.dumps(value, separators=(",", ":"))
    except RecursionError as error:
        raise CredentialsInvalid("key is too deep for the JSON of a service account") from error
    if len(text) > MAX_LENGTH:
        raise CredentialsInvalid("key is too long for the JSON of a service account")
    return text


_READERS: Mapping[str, Callable[[PrivateRegistry, Any], str]] = {
    "username": _username,
    "token": partial(_text, "token"),
    "key": _service_account,
}
"""What reads each field."""


def credentials_in(
    registry: PrivateRegistry, document: bytes, further: Iterable[str] = ()
) -> tuple[Credentials, ...]:
    """Read the credentials for a registry out of a docker configuration.

    Parameters
    ----------
    registry
        Which registry they are for; entries for other hosts are passed over.
    document
        Content of the key ``.dockerconfigjson``.
    further
        Hosts that an installation has in addition to the registry's own.

    Raises
    ------
    CredentialsInvalid
        When it is not a docker configuration, or has no entry that can be used.
    """
    allowed = (*_HOSTS[registry], *further)
    try:
        entries = json.loads(document)["auths"].items()
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise CredentialsInvalid(
            'it is not a docker configuration; write {"auths": {…}} as docker login does'
        ) from error
    found = []
    for key, entry in entries:
        host = "docker.io" if key == _DOCKER_HUB_KEY else _host_of(key)
        pair = _pair(entry) if isinstance(entry, dict) else None
        # Entries for other hosts are skipped: a document of docker login often has several.
        if pair is not None and any(host == each or _matches(host, each) for each in allowed):
            found.append(Credentials((host,), *pair))
    if not found:
        hosts = " or ".join(allowed)
        raise CredentialsInvalid(f"it has no user name and password for {hosts}; add them")
    return tuple(found)


def _host_of(key: str) -> str:
    """Return the host of an entry: some tools write an address."""
    return key.partition("://")[2].partition("/")[0] if "://" in key else key.partition("/")[0]


def _pair(entry: Mapping[str, Any]) -> tuple[str, str] | None:
    """Read user name and password of an entry, written apart or together; None means neither."""
    username, password = entry.get("username"), entry.get("password")
    if not (username and password):
        try:
            text = base64.b64decode(entry.get("auth") or "", validate=True).decode()
        except (ValueError, TypeError):
            return None
        username, _, password = text.partition(":")
    if not (isinstance(username, str) and isinstance(password, str) and username and password):
        return None
    return username, password


def docker_config(credentials: Iterable[Credentials]) -> bytes:
    """Write the content of a Secret of the type kubernetes.io/dockerconfigjson.

    Parameters
    ----------
    credentials
        Those of an organization; of two for the same host the first counts.

    Returns
    -------
    bytes
        JSON for the key ``.dockerconfigjson``; equal input gives equal bytes.
    """
    entries: dict[str, dict[str, str]] = {}
    for each in credentials:
        pair = f"{each.username}:{each.password}".encode()
        for host in each.hosts:
            key = _DOCKER_HUB_KEY if host == "docker.io" else host
            entry = {
                "username": each.username,
                "password": each.password,
                "auth": base64.b64encode(pair).decode(),
            }
            entries.setdefault(key, entry)
    return json.dumps({"auths": entries}, sort_keys=True, separators=(",", ":")).encode()
