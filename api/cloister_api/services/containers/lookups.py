"""Lookups outside of the cluster for requests: in lanes, and within the time of the request.

One organization whose registries are slow waits for itself: organizations take turns, and a request
has a deadline for everything that it looks up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar

from cachetools import TTLCache

from cloister_api.errors import ApiError, unavailable
from cloister_api.settings import LookupSettings
from cloister_clients.clock import Clock
from cloister_clients.lanes.lane import HostLeftAlone
from cloister_clients.lanes.outside import OutsideLanes, in_turn, registry_of
from cloister_clients.registry import Platform, RegistryClient, RegistryError
from cloister_clients.registry.stored import StoredCredentials, fitting_credentials
from cloister_clients.sources import ListedRelease, PublishedRelease, SourceProvider
from cloister_crds.lifecycle.admission.image_size import ImageSize
from cloister_crds.lifecycle.state.observed import Failed

__all__ = ["LookupDeadline", "Lookups"]

T = TypeVar("T")

LookupDeadline = float
"""Time of the event loop until which a request may look things up, in seconds."""


LIST_SECONDS = 60.0
"""For how long the list of a repository's releases is kept."""
MAX_LISTS = 1024
"""How many of these lists are kept."""


class Lookups:
    """Looks releases up at the source of repositories, and images at registries."""

    def __init__(
        self,
        source: SourceProvider,
        registry: RegistryClient,
        *,
        lanes: OutsideLanes,
        platform: Platform,
        settings: LookupSettings,
        clock: Clock,
    ) -> None:
        self._source = source
        self._registry = registry
        self._lanes = lanes
        self._platform = platform
        self._settings = settings
        self._clock = clock
        self._requests: dict[str, int] = {}
        self._lists: TTLCache[tuple[str, int], tuple[ListedRelease, ...]] = TTLCache(
            MAX_LISTS, LIST_SECONDS, timer=lambda: clock().timestamp()
        )

    async def aclose(self) -> None:
        """Close connections."""
        await self._source.aclose()
        await self._registry.aclose()

    @contextmanager
    def request(self, organization: str) -> Iterator[LookupDeadline]:
        """Count a request of an organization while it looks things up, and give its deadline.

        Raises
        ------
        ApiError
            429 when the organization has too many of them.
        """
        running = self._requests.get(organization, 0)
        if running >= self._settings.requests_per_organization:
            raise crowded(running)
        self._requests[organization] = running + 1
        try:
            yield asyncio.get_running_loop().time() + self._settings.request_seconds
        finally:
            left = self._requests[organization] - 1
            if left:
                self._requests[organization] = left
            else:
                del self._requests[organization]

    async def release(
        self,
        repo: str,
        tag: str,
        organization: str,
        until: LookupDeadline,
        *,
        commit: str | None = None,
        kept: bool = False,
    ) -> PublishedRelease:
        """Read a release, of a commit as `SourceProvider.resolve` has it.

        Raises
        ------
        ApiError
            503 when its source is not queried at present, or not in time.
        SourceError
            When there is no such release, or the source does not respond.
        """
        return await self._of_source(
            lambda: self._source.resolve(repo, tag, commit=commit, kept=kept), organization, until
        )

    async def releases(self, repo: str, limit: int, organization: str) -> tuple[ListedRelease, ...]:
        """Return the newest releases of a repository, as they were in the last minute.

        Parameters
        ----------
        repo
            ``owner/name``.
        limit
            Releases at most.
        organization
            Slug of the organization that asks, in whose lane the lookup waits.

        Raises
        ------
        ApiError
            429 when the organization looks up too much at once, 503 when the source is not queried
            at present or not in time.
        SourceError
            When there is no such repository, or the source does not respond.
        """
        known = self._lists.get((repo, limit))
        if known is not None:
            return known
        with self.request(organization) as until:
            found = await self._of_source(
                lambda: self._source.releases(repo, limit), organization, until
            )
        self._lists[repo, limit] = found
        return found

    async def _of_source(
        self, ask: Callable[[], Awaitable[T]], organization: str, until: LookupDeadline
    ) -> T:
        """Query the source of repositories when it is the organization's turn."""
        lanes = self._lanes
        try:
            async with asyncio.timeout_at(until):
                return await in_turn(lanes.sources, organization, lanes.source_host, ask)
        except HostLeftAlone as left:
            seconds = (left.until - self._clock()).total_seconds()
            raise unavailable(left_alone(left), retry_after=seconds) from left
        except TimeoutError as error:
            raise unavailable(self._too_long("the source of repositories")) from error

    async def image(
        self,
        image: str,
        organization: str,
        stored: tuple[StoredCredentials, ...],
        until: LookupDeadline,
    ) -> Failed | ImageSize:
        """Look an image up; return what is wrong with it, or how large it is."""
        registry = registry_of(image)

        async def resolve() -> ImageSize:
            chosen = fitting_credentials(image, stored)
            credentials = chosen.credentials if chosen is not None else None
            found = await self._registry.resolve(
                image, platform=self._platform, credentials=credentials
            )
            return ImageSize(found.runtime_size, found.size)

        try:
            async with asyncio.timeout_at(until):
                return await in_turn(self._lanes.registries, organization, registry, resolve)
        except RegistryError as error:
            return Failed(error.reason, error.message, error.transient, self._clock())
        except HostLeftAlone as left:
            return self._no_response(left_alone(left), left.until)
        except TimeoutError:
            return self._no_response(self._too_long(registry))

    def _no_response(self, message: str, retry_at: datetime | None = None) -> Failed:
        """Return why an image was not looked up."""
        return Failed("RegistryUnavailable", message, True, self._clock(), retry_at)

    def _too_long(self, host: str) -> str:
        """Return a sentence: the request had no time left."""
        return (
            f"{host} did not respond within the {self._settings.request_seconds:g} seconds that "
            "all lookups of a request may take; try again"
        )


def left_alone(left: HostLeftAlone) -> str:
    """Return a sentence: the host is not queried for a while."""
    return (
        f"{left.host} did not respond in time lately and is not queried until "
        f"{left.until:%H:%M:%S} UTC; try again then"
    )


def crowded(running: int) -> ApiError:
    """429 because of the organization's other requests."""
    return ApiError(
        429,
        "RATE_LIMITED",
        f"{running} requests of the organization are looking up releases and images, as many as "
        "may; wait for some",
        retry_after=5,
    )
