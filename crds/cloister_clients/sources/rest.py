"""Requests to the REST interface of a forge: conditional, bounded, patient.

`GitHubProvider` and `GiteaProvider` send through `Forge` and interpret the responses.
Each response with an ETag is cached, and requested again only "if it changed" (RFC 9110, section
13.1.2), which GitHub does not count. While a forge requests a pause, nothing is sent.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx
from cachetools import LRUCache

from cloister_clients.address_guard import AddressRefused, Guard
from cloister_clients.clock import Clock, utc_now
from cloister_clients.foreign_json import TooManyValues, parse_apart, parse_json
from cloister_clients.outbound import (
    LONGEST_WAIT,
    HttpResponse,
    ResponseTooLarge,
    fetch,
    guarded_client,
    is_timeout,
    retry_after,
    trust,
)
from cloister_clients.sources.errors import (
    RateLimited,
    RepositoryNotFound,
    SourceError,
    SourceRefused,
    SourceUnauthorized,
    SourceUnavailable,
)
from cloister_clients.sources.release import ListedRelease, is_tag
from cloister_clients.sources.settings import SourceSettings
from cloister_crds.lifecycle.state.release_order import release_order

__all__ = ["Forge", "ForgeResponse", "integer", "moment", "text"]

MAX_RESPONSE_BYTES = 8 * 1024**2
"""Largest response that is read, in bytes; a list of the files in a large directory."""

MAX_VALUES = 262_144
"""Most values of a response; 30 releases with a hundred files each have half of that."""

MAX_KEPT_BYTES = 32 * 1024**2
"""Size of the cache of responses for conditional requests, in bytes."""

SECONDARY_WAIT = 60.0
"""Wait after a secondary limit that names no time, in seconds (GitHub's advice)."""


@dataclass(frozen=True, slots=True)
class ForgeResponse:
    """A successful response."""

    body: bytes
    """Its body."""

    async def json(self) -> Any:
        """Read the body as JSON.

        Raises
        ------
        SourceRefused
            When it has too many values.
        SourceUnavailable
            When it is not that.
        """
        try:
            return await parse_apart(partial(parse_json, most=MAX_VALUES), self.body)
        except TooManyValues as error:
            raise SourceRefused(f"the forge's response is too large: {error}") from error
        except ValueError as error:
            raise SourceUnavailable(
                f"the forge responded with something that is not read as JSON: {error}"
            ) from error

    async def object(self) -> dict[str, Any]:
        """Read the body as a JSON object.

        Raises
        ------
        SourceUnavailable
            When it is not that.
        """
        data = await self.json()
        if not isinstance(data, dict):
            raise SourceUnavailable("the forge responded with something else than an object")
        return data


class Forge:
    """One forge, reached by HTTP."""

    def __init__(
        self,
        settings: SourceSettings,
        base: str,
        *,
        guard: Guard | None,
        clock: Clock | None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = settings
        self._base = base
        self._headers = dict(headers or {})
        self._clock = clock or utc_now
        self._client = guarded_client(
            guard or settings.guard(),
            context=trust(settings.ca_file),
            timeout_seconds=min(settings.timeout_seconds, 30.0),
            user_agent="cloister",
        )
        self._kept: LRUCache[str, tuple[str, bytes]] = LRUCache(
            MAX_KEPT_BYTES, getsizeof=lambda kept: len(kept[1])
        )
        self._silent_until: datetime | None = None

    async def aclose(self) -> None:
        """Close connections."""
        await self._client.aclose()

    @asynccontextmanager
    async def lookup(self, repo: str) -> AsyncIterator[None]:
        """Bound the time of all requests for one lookup.

        Raises
        ------
        SourceUnavailable
            When they took too long together.
        """
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                yield
        except TimeoutError as error:
            raise SourceUnavailable(
                f"the forge took longer than {self._settings.timeout_seconds:g} seconds for {repo}",
                timed_out=True,
            ) from error

    async def get(
        self, repo: str, path: str, *, accept: str, limit: int = 0
    ) -> ForgeResponse | None:
        """Request something.

        Parameters
        ----------
        path
            Path below the base, percent-encoded, with its query.
        limit
            Largest response, in bytes; 0: the usual limit.

        Returns
        -------
        ForgeResponse or None
            None when the forge reports 404.

        Raises
        ------
        SourceError
            When it says anything else.
        """
        self._check_silence()
        headers = {**self._headers, "Accept": accept}
        token = self._token()
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        # The token is part of the key: another one may see other things.
        key = hashlib.sha256(f"{token}\n{accept}\n{path}".encode()).hexdigest()
        kept = self._kept.get(key)
        if kept is not None:
            headers["If-None-Match"] = kept[0]
        response = await self._fetch(repo, path, headers, limit or MAX_RESPONSE_BYTES)
        if response.status == 304 and kept is not None:  # noqa: PLR2004 - Not Modified
            return ForgeResponse(kept[1])
        if response.status == 200:  # noqa: PLR2004 - OK
            self._keep(key, response)
            return ForgeResponse(response.body)
        if response.status == 404:  # noqa: PLR2004 - Not Found
            return None
        raise self._failure(repo, response)

    def _check_silence(self) -> None:
        """Raise while the forge requests a pause."""
        now = self._clock()
        if self._silent_until is not None and now < self._silent_until:
            raise RateLimited(
                "the forge wants fewer requests; it is retried later",
                retry_after=(self._silent_until - now).total_seconds(),
            )

    def _token(self) -> str | None:
        """Read the token, as it is now."""
        try:
            token = self._settings.read_token()
        except (OSError, UnicodeError) as error:
            raise SourceUnauthorized(
                "the token of the forge could not be read; an administrator must check tokenFile"
            ) from error
        if token is not None and not (token.isascii() and token.isprintable()):
            raise SourceUnauthorized("the token in tokenFile holds characters that no token has")
        return token

    async def _fetch(
        self, repo: str, path: str, headers: dict[str, str], limit: int
    ) -> HttpResponse:
        """Send one request and translate its failures."""
        url = f"{self._base}{path}"
        try:
            return await fetch(self._client, "GET", url, headers=headers, limit=limit)
        except AddressRefused as error:
            raise SourceRefused(str(error)) from error
        except ResponseTooLarge as error:
            raise SourceRefused(f"{repo} is not read: {error}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise SourceUnavailable(
                f"the forge did not respond for {repo}: {str(error) or type(error).__name__}",
                timed_out=is_timeout(error),
            ) from error

    def _keep(self, key: str, response: HttpResponse) -> None:
        """Cache a response that can be requested conditionally, unless it displaces many."""
        etag = response.headers.get("etag", "")
        if not etag or len(response.body) > MAX_KEPT_BYTES // 64:
            return
        self._kept[key] = (etag, response.body)

    def _failure(self, repo: str, response: HttpResponse) -> SourceError:
        """Build the error for a response other than 200, 304 and 404."""
        wait = self._wait(response)
        if wait is not None:
            self._silent_until = self._clock() + timedelta(seconds=wait)
            return RateLimited(
                "the forge wants fewer requests; it is retried later", retry_after=wait
            )
        match response.status:
            case 401 if self._settings.token_file is None:
                return SourceUnauthorized(
                    "the forge wants credentials; an administrator must set tokenFile"
                )
            case 401:
                return SourceUnauthorized(
                    "the forge refused the installation's own token; an administrator must renew it"
                )
            case 403 | 451:
                return RepositoryNotFound(repo)
            case status:
                return SourceUnavailable(
                    f"the forge responded with status {status} for {repo}",
                    retry_after=retry_after(response.headers, self._clock()),
                )

    def _wait(self, response: HttpResponse) -> float | None:
        """Return how long a rate limit lasts, in seconds; None when there is none.

        GitHub, "Rate limits for the REST API": status 403 or 429, with ``retry-after``, or with
        ``x-ratelimit-remaining: 0`` and the time in ``x-ratelimit-reset``, or with a message
        only about a secondary limit.
        """
        if response.status not in {403, 429}:
            return None
        wait = retry_after(response.headers, self._clock())
        if wait is not None:
            return wait
        reset = response.headers.get("x-ratelimit-reset", "")
        if response.headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
            seconds = float(reset[:12]) - self._clock().timestamp()
            return min(max(seconds, 1.0), LONGEST_WAIT)
        if response.status == 429 or b"rate limit" in response.body.lower():  # noqa: PLR2004 - Too Many
            return SECONDARY_WAIT
        return None


def listed_releases(data: Any) -> tuple[ListedRelease, ...]:
    """Return the published releases of a forge's list, newest first.

    Parameters
    ----------
    data
        The list. Drafts, and tags whose names cannot be requested, are left out.

    Raises
    ------
    SourceUnavailable
        When an entry has no tag or no time.
    """
    found = [
        ListedRelease(
            tag=text(each, "tag_name"),
            published=moment(each, "published_at"),
            prerelease=each.get("prerelease") is True,
        )
        for each in (data if isinstance(data, list) else [])
        if isinstance(each, dict) and not each.get("draft") and each.get("published_at")
    ]
    askable = (each for each in found if is_tag(each.tag))
    return tuple(
        sorted(askable, key=lambda each: release_order(each.published, each.tag), reverse=True)
    )


def order_of(release: dict[str, Any]) -> tuple[datetime, tuple[tuple[int, int, str], ...]]:
    """Return the sort key of a release of a forge: that of a later one is larger.

    Raises
    ------
    SourceUnavailable
        When it has no tag or no time.
    """
    return release_order(moment(release, "published_at"), text(release, "tag_name"))


def text(data: dict[str, Any], *path: str) -> str:
    """Read a text in nested objects.

    Raises
    ------
    SourceUnavailable
        When it is not there; the forge then speaks another version of its interface.
    """
    value: Any = data
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, str):
        raise SourceUnavailable(f"the forge's response has no {'.'.join(path)}")
    return value


def integer(data: dict[str, Any], key: str) -> int:
    """Read a whole number.

    Raises
    ------
    SourceUnavailable
        When it is not there.
    """
    value = data.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise SourceUnavailable(f"the forge's response has no {key}")
    return value


def moment(data: dict[str, Any], key: str) -> datetime:
    """Read a time (RFC 3339) in UTC.

    Raises
    ------
    SourceUnavailable
        When it is not there or no time.
    """
    value = text(data, key)
    try:
        found = datetime.fromisoformat(value)
    except ValueError as error:
        raise SourceUnavailable(f"the forge's response has no time in {key}") from error
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
