"""The lanes of lookups, which lane a lookup takes, and which remote host it queries."""

from collections.abc import Mapping

import httpx

from cloister_clients.clock import Clock
from cloister_clients.registry import RegistryError, parse_reference
from cloister_clients.sources import SourceKind, SourceSettings
from cloister_crds.lifecycle.state.observed import (
    Need,
    NeedDns,
    NeedImage,
    NeedLatest,
    NeedRelease,
    NeedSecretValues,
)
from cloister_operator.lookups.fair_queue import Shares
from cloister_operator.lookups.lane import Lane

__all__ = ["Lanes"]

_API_SERVER = Shares(total=64, per_organization=16, per_host=64)
"""The API server has priorities and queues of its own."""
_PER_HOST = 8
"""Lookups at one source or registry at once."""


class Lanes:
    """The lanes of one process."""

    def __init__(
        self, *, total: int, per_organization: int, sources: SourceSettings, clock: Clock
    ) -> None:
        shares = Shares(total, per_organization, _PER_HOST)
        self._cluster = Lane(_API_SERVER, clock)
        self._dns = Lane(shares, clock)
        self._sources = Lane(_shares_of_sources(shares, sources), clock)
        self._registries = Lane(shares, clock)
        # A directory on this machine has no host.
        self._source_host = httpx.URL(sources.address).host

    @property
    def by_name(self) -> Mapping[str, Lane]:
        """The lanes, by their names in metrics."""
        return {
            "api-server": self._cluster,
            "dns": self._dns,
            "sources": self._sources,
            "registries": self._registries,
        }

    def of(self, need: Need) -> Lane:
        """Return the lane of a lookup."""
        match need:
            case NeedSecretValues():
                return self._cluster
            case NeedDns():
                return self._dns
            case NeedRelease() | NeedLatest():
                return self._sources
            case NeedImage():
                return self._registries

    def host(self, need: Need) -> str:
        """Return the remote host that a lookup queries; empty = none that is shared out."""
        match need:
            case NeedRelease() | NeedLatest():
                return self._source_host
            case NeedImage():
                return _registry(need.image)
            case NeedSecretValues() | NeedDns():
                return ""

    def unavailable(self, need: Need) -> str:
        """Return the reason of a lookup whose host does not respond."""
        return "RegistryUnavailable" if isinstance(need, NeedImage) else "SourceUnavailable"


def _shares_of_sources(shares: Shares, sources: SourceSettings) -> Shares:
    """Return the shares at the source provider: git works on few lookups at once.

    One organization has a quarter of them, since one with slow repositories would otherwise leave
    nothing.
    """
    if sources.kind is not SourceKind.GIT:
        return shares
    total = min(shares.total, sources.fetches_at_once)
    return Shares(total, min(shares.per_organization, max(1, total // 4)), total)


def _registry(image: str) -> str:
    """Return the registry of an image; empty = the reference is invalid, and nothing is queried."""
    try:
        return parse_reference(image).registry
    except RegistryError:
        return ""
