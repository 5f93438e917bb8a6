"""The lanes to sources and to registries, and which remote host a lookup there queries."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx

from cloister_clients.clock import Clock
from cloister_clients.lanes.lane import Lane, Shares
from cloister_clients.registry import RegistryError, parse_reference
from cloister_clients.sources import SourceError, SourceKind, SourceSettings

__all__ = ["PER_HOST", "OutsideLanes", "in_turn", "registry_of"]

T = TypeVar("T")

PER_HOST = 8
"""Concurrent lookups at one source or registry."""


class OutsideLanes:
    """The lanes of one process to servers that are not its own.

    Parameters
    ----------
    total
        Concurrent lookups in each lane.
    """

    def __init__(
        self, *, total: int, per_organization: int, sources: SourceSettings, clock: Clock
    ) -> None:
        shares = Shares(total, per_organization, PER_HOST)
        self.sources = Lane(_shares_of_sources(shares, sources), clock)
        """The lane to the source provider."""
        self.registries = Lane(shares, clock)
        """The lane to registries."""
        # A directory on this machine has no host.
        self.source_host = httpx.URL(sources.address).host
        """Host of the source provider; empty means none that is shared out."""


async def in_turn(
    lane: Lane, organization: str, host: str, look_up: Callable[[], Awaitable[T]]
) -> T:
    """Perform a lookup that nobody shares when it is its turn.

    Parameters
    ----------
    host
        Remote host that it queries; empty means none that is shared out.

    Raises
    ------
    HostLeftAlone
        When the host did not respond in time lately.
    RegistryError, SourceError
        As the lookup raises them.
    """
    name = object()
    lane.enter(name, organization, host)
    async with lane.turn(name, host) as turn:
        try:
            return await look_up()
        except (RegistryError, SourceError) as error:
            turn.timed_out = getattr(error, "timed_out", False)
            failure = error
    raise failure


def registry_of(image: str) -> str:
    """Return the registry of an image; empty if the reference is invalid."""
    try:
        return parse_reference(image).registry
    except RegistryError:
        return ""


def _shares_of_sources(shares: Shares, sources: SourceSettings) -> Shares:
    """Return the shares at the source provider: git runs few lookups concurrently.

    One organization has a quarter of them, since one with slow repositories would otherwise leave
    nothing.
    """
    if sources.kind is not SourceKind.GIT:
        return shares
    total = min(shares.total, sources.fetches_at_once)
    return Shares(total, min(shares.per_organization, max(1, total // 4)), total)
