"""The lanes of lookups, which lane a lookup takes, and which remote host it queries."""

from collections.abc import Mapping

from cloister_clients.clock import Clock
from cloister_clients.lanes.fair_queue import Shares
from cloister_clients.lanes.lane import Lane
from cloister_clients.lanes.outside import PER_HOST, OutsideLanes, registry_of
from cloister_clients.sources import SourceSettings
from cloister_crds.lifecycle.state.observed import (
    Need,
    NeedDns,
    NeedImage,
    NeedLatest,
    NeedRelease,
    NeedSecretValues,
)

__all__ = ["Lanes"]

_API_SERVER = Shares(total=64, per_organization=16, per_host=64)
"""The API server has priorities and queues of its own."""


class Lanes:
    """The lanes of one process."""

    def __init__(
        self, *, total: int, per_organization: int, sources: SourceSettings, clock: Clock
    ) -> None:
        self._cluster = Lane(_API_SERVER, clock)
        self._dns = Lane(Shares(total, per_organization, PER_HOST), clock)
        self._outside = OutsideLanes(
            total=total, per_organization=per_organization, sources=sources, clock=clock
        )

    @property
    def by_name(self) -> Mapping[str, Lane]:
        """The lanes, by their names in metrics."""
        return {
            "api-server": self._cluster,
            "dns": self._dns,
            "sources": self._outside.sources,
            "registries": self._outside.registries,
        }

    def of(self, need: Need) -> Lane:
        """Return the lane of a lookup."""
        match need:
            case NeedSecretValues():
                return self._cluster
            case NeedDns():
                return self._dns
            case NeedRelease() | NeedLatest():
                return self._outside.sources
            case NeedImage():
                return self._outside.registries

    def host(self, need: Need) -> str:
        """Return the remote host that a lookup queries; empty = none that is shared out."""
        match need:
            case NeedRelease() | NeedLatest():
                return self._outside.source_host
            case NeedImage():
                return registry_of(need.image)
            case NeedSecretValues() | NeedDns():
                return ""

    def unavailable(self, need: Need) -> str:
        """Return the reason of a lookup whose host does not respond."""
        return "RegistryUnavailable" if isinstance(need, NeedImage) else "SourceUnavailable"
