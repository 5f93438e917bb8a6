"""Release webhooks: a forge reports a release, and followers of the repository check immediately.

The webhook is only a trigger: whatever it contains, the release is looked up at the source.
"""

import asyncio
import hashlib
import hmac
import logging
import re
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Annotated

import msgspec
from cachetools import LRUCache

from cloister_api.auth.token_bucket import RateLimit, TokenBucket, consume
from cloister_api.errors import ApiError, bad_request, too_deep
from cloister_api.services.infrastructure import Infrastructure
from cloister_api.wire import DepthError, decode
from cloister_clients.foreign_json import parse_apart
from cloister_clients.kube import NotFound
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Deployment
from cloister_crds.kinds.meta import REQUESTED_AT_ANNOTATION
from cloister_crds.names import RepositoryNames

logger = logging.getLogger(__name__)

_FORGE = RepositoryNames(ignore_case=True)
"""How the forges that send events compare names."""
SIGNATURE = re.compile(r"[0-9a-f]{64}")
LEAST_SECRET = 16
"""Fewest characters of the secret."""
ANNOUNCED = RateLimit(per_second=0.2, burst=30)
"""Releases of one repository that may be announced, by replica: each is a write and a lookup for
everybody who follows it, and the secret is shared by all repositories."""
REPOSITORIES = 10_000
"""Repositories whose rate is kept; only those that somebody follows are."""
NOT_SET_UP = ApiError(
    404,
    "NOT_FOUND",
    "this installation accepts no release webhooks; the setting webhooks.releaseSecretFile "
    "enables them",
)
BAD_SIGNATURE = ApiError(
    401,
    "UNAUTHORIZED",
    "the signature is missing or wrong; configure the webhook with this installation's secret",
)


class EventRepository(msgspec.Struct):
    """The repository of an event."""

    full_name: Annotated[str, msgspec.Meta(min_length=1)]


class ReleaseEvent(msgspec.Struct):
    """A release event; it has more."""

    repository: EventRepository


EVENT = msgspec.json.Decoder(ReleaseEvent)


class WebhookError(Exception):
    """The secret cannot be used; the message names the file and the remedy."""


def read_webhook_secret(path: Path | None) -> bytes | None:
    """Read the secret that signs release webhooks; None if none is set.

    Raises
    ------
    WebhookError
        When the file cannot be read or its secret is too short.
    """
    if path is None:
        return None
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise WebhookError(f"webhooks.releaseSecretFile: {path}: {error.strerror}") from error
    if len(secret) < LEAST_SECRET:
        raise WebhookError(
            f"webhooks.releaseSecretFile: {path} holds fewer than {LEAST_SECRET} characters; "
            "write a longer random text into it"
        )
    return secret


class ReleaseWebhooks:
    """Handles release webhooks of GitHub, Gitea and Forgejo."""

    def __init__(self, base: Infrastructure) -> None:
        self._client, self._cache = base.client, base.cache
        self._secret = read_webhook_secret(base.settings.webhooks.release_secret_file)
        self._clock = base.clock
        self._announced: LRUCache[str, TokenBucket] = LRUCache(REPOSITORIES)

    async def admit(self, headers: Mapping[str, str]) -> str:
        """Judge the headers of a webhook before its body is read, and return its signature.

        Parameters
        ----------
        headers
            Headers of the request, by names in lower case.

        Raises
        ------
        ApiError
            404 when no secret is set, 401 when there is no signature.
        """
        if self._secret is None:
            raise NOT_SET_UP
        # GitHub, "Validating webhook deliveries"; Gitea, "Webhooks".
        sent = headers.get("x-hub-signature-256") or headers.get("x-gitea-signature") or ""
        signature = sent.removeprefix("sha256=").lower()
        if not SIGNATURE.fullmatch(signature):
            raise BAD_SIGNATURE
        return signature

    async def accept(self, body: bytes, event: str, signature: str) -> int:
        """Trigger the check of all deployments that follow a repository.

        Parameters
        ----------
        body
            The body as received; it is what is signed.
        event
            Name of the event, such as ``release``; others are acknowledged and ignored.
        signature
            Hexadecimal HMAC-SHA256 of the body, from `admit`.

        Raises
        ------
        ApiError
            401 for a wrong signature, 400 for a body that names no repository, 429 when its
            releases are announced too often.
        KubeError
            When the cluster refuses or does not respond.
        """
        assert self._secret is not None
        wanted = hmac.new(self._secret, body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(signature, wanted):
            raise BAD_SIGNATURE
        if event != "release":
            return 0
        repo = await parse_apart(repository_of, body)
        followers = self._followers(repo)
        if followers:
            self._count(repo)
        triggered = 0
        for namespace, name in followers:
            at = self._clock().isoformat(timespec="microseconds")
            patch = {"metadata": {"annotations": {REQUESTED_AT_ANNOTATION: at}}}
            try:
                await self._client.merge_patch(of(Deployment), name, patch, namespace)
            except NotFound:
                continue
            triggered += 1
        logger.info("a release of %s was announced; %d deployments triggered", repo, triggered)
        return triggered

    def _count(self, repo: str) -> None:
        """Count a release of a repository that is followed.

        Raises
        ------
        ApiError
            429.
        """
        bucket = self._announced.setdefault(_FORGE.key(repo), TokenBucket())
        wait = consume(bucket, ANNOUNCED, asyncio.get_running_loop().time())
        if wait:
            raise ApiError(
                429,
                "RATE_LIMITED",
                f"too many releases of {repo} were announced; each is looked up without an "
                "announcement too, so there is no need to send it again",
                retry_after=ceil(wait),
            )

    def _followers(self, repo: str) -> list[tuple[str, str]]:
        """Return the Deployments of a repository that a connected container follows."""
        found = []
        for entry in self._cache.deployments.all():
            deployment = entry.value.value
            # Only forges send events, with the canonical name of the repository.
            if not _FORGE.same(deployment.spec.repo, repo):
                continue
            specs = (held.container.spec for held in self._cache.containers_of(entry.namespace))
            if any(
                spec.auto_update and spec.github_connected and _FORGE.same(spec.repo, repo)
                for spec in specs
            ):
                found.append((entry.namespace, deployment.metadata.name))
        return found


def repository_of(body: bytes) -> str:
    """Return the repository that a release event is about.

    Raises
    ------
    ApiError
        400 when there is none.
    """
    try:
        event = decode(EVENT, body)
    except DepthError as error:
        raise too_deep(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(
            "", f"the body is not a release event: {error}; send the webhook as application/json"
        ) from error
    return event.repository.full_name
