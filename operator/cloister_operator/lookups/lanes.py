"""The lanes of lookups, which objects need them, and their results, bounded in bytes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from typing_extensions import override

from cloister_clients.clock import Clock
from cloister_clients.lanes.lane import Lane, Shares
from cloister_clients.lanes.outside import PER_HOST, OutsideLanes, registry_of
from cloister_clients.sources import SourceSettings
from cloister_crds.lifecycle.state.observed import (
    LookupResult,
    Need,
    NeedDns,
    NeedImage,
    NeedLatest,
    NeedRelease,
    NeedSecretValues,
)
from cloister_operator.cache.reconcile_memory import memory_size
from cloister_operator.workqueue.triggers import Key


class LookupUsers:
    """Lookups by the key of an object, and keys by lookup."""

    def __init__(self) -> None:
        self._needs: dict[Key, set[Need]] = {}
        self._keys: dict[Need, set[Key]] = {}

    def __contains__(self, need: Need) -> bool:
        """Return whether any object needs a lookup."""
        return need in self._keys

    def add(self, need: Need, key: Key) -> None:
        """Record that an object needs a lookup."""
        self._needs.setdefault(key, set()).add(need)
        self._keys.setdefault(need, set()).add(key)

    def forget_need(self, need: Need) -> None:
        """Drop a lookup whose result was dropped; who still needs it requests it again."""
        for key in self._keys.pop(need, ()):
            needs = self._needs[key]
            needs.discard(need)
            if not needs:
                del self._needs[key]

    def forget_key(self, key: Key) -> list[Need]:
        """Drop an object that is gone; return the lookups that nobody needs any more."""
        unneeded = []
        for need in self._needs.pop(key, ()):
            keys = self._keys[need]
            keys.discard(key)
            if not keys:
                del self._keys[need]
                unneeded.append(need)
        return unneeded


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
        """Return the remote host that a lookup queries; empty means none that is shared out."""
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


@dataclass(slots=True)
class _Shared:
    """A result under the lookups of one organization that have it."""

    size: int
    """Bytes that it takes."""
    uses: int = 0
    """Lookups that have it."""


class _Holding:
    """What one organization has in the cache; the least recently used first."""

    def __init__(self) -> None:
        self.results: dict[Need, LookupResult] = {}
        self.size = 0
        self._shared: dict[int, _Shared] = {}

    def add(self, need: Need, result: LookupResult, size: int) -> None:
        shared = self._shared.setdefault(id(result), _Shared(size))
        if not shared.uses:
            self.size += size
        shared.uses += 1
        self.size += memory_size(need)
        self.results[need] = result

    def remove(self, need: Need) -> None:
        result = self.results.pop(need)
        shared = self._shared[id(result)]
        shared.uses -= 1
        self.size -= memory_size(need)
        if not shared.uses:
            self.size -= shared.size
            del self._shared[id(result)]


class ResultCache(Mapping[Need, LookupResult]):
    """Results by lookup, of all organizations together within a bound.

    Where room is missing, the organization that takes most loses what it has not used for longest,
    so that nobody's results go for the sake of a larger one. A result that several lookups of an
    organization have, such as that of one release for many Containers, is counted once.
    """

    def __init__(self, max_bytes: int, *, dropped: Callable[[Need], None] | None = None) -> None:
        self._max_bytes = max_bytes
        self._dropped = dropped
        self._holdings: dict[str, _Holding] = {}
        self._owners: dict[Need, str] = {}
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes that are taken."""
        return self._size

    @override
    def __getitem__(self, need: Need) -> LookupResult:
        """Return a result; it counts as used."""
        results = self._holdings[self._owners[need]].results
        result = results[need] = results.pop(need)
        return result

    @override
    def __iter__(self) -> Iterator[Need]:
        """Return the lookups that have a result."""
        return iter(self._owners)

    @override
    def __len__(self) -> int:
        """Return how many results there are."""
        return len(self._owners)

    @override
    def __contains__(self, need: object) -> bool:
        """Return whether there is a result; it does not count as used."""
        return need in self._owners

    def put(self, need: Need, result: LookupResult, organization: str, size: int) -> None:
        """Add or replace a result of an organization that takes `size` bytes."""
        self._take_out(need)
        holding = self._holdings.setdefault(organization, _Holding())
        before = holding.size
        holding.add(need, result, size)
        self._size += holding.size - before
        self._owners[need] = organization
        while self._size > self._max_bytes:
            largest = max(self._holdings.values(), key=lambda each: each.size)
            self.remove(next(iter(largest.results)))

    def remove(self, need: Need) -> None:
        """Remove a result, if there is one."""
        self._take_out(need)
        if self._dropped is not None:
            self._dropped(need)

    def _take_out(self, need: Need) -> None:
        """Remove a result that may be put in again."""
        organization = self._owners.pop(need, None)
        if organization is None:
            return
        holding = self._holdings[organization]
        before = holding.size
        holding.remove(need)
        self._size += holding.size - before
        if not holding.results:
            del self._holdings[organization]
