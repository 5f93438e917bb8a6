"""What reconciles remember between runs: parsed objects and files, within a bound in bytes."""

import asyncio
import contextlib
import dataclasses
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from cachetools import FIFOCache, LRUCache
from pydantic import BaseModel

from cloister_clients.kube import KindRef
from cloister_crds.config import STORED, ParsedConfig, parse
from cloister_crds.kinds import Container, Enclave, Organization
from cloister_crds.kinds.meta import Resource
from cloister_operator.cache.projections import CONTAINER, ENCLAVE, ORGANIZATION
from cloister_operator.cache.store import CachedObject, Store, StoreChange
from cloister_operator.enclave.built import BuiltEnclave


def memory_size(value: object) -> int:
    """Return the bytes that a value and everything that it refers to take.

    What is referred to several times is counted once. Records, models, containers and their
    elements are followed; any other object counts on its own.
    """
    seen: set[int] = set()
    total, rest = 0, [value]
    while rest:
        each = rest.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        rest.extend(_parts(each))
    return total


def _parts(value: object) -> Iterable[object]:
    """Return what a value refers to."""
    if isinstance(value, str | bytes):
        return ()
    if isinstance(value, dict):
        return (*value.keys(), *value.values())
    if isinstance(value, tuple | list | set | frozenset):
        return value
    if isinstance(value, BaseModel):
        return (value.__dict__, value.model_fields_set, *value.__dict__.values())
    if dataclasses.is_dataclass(value):
        return [getattr(value, each.name) for each in dataclasses.fields(value)]
    return ()


R = TypeVar("R", bound=Resource)

_KEPT = 8192
"""Models that are cached at most; the least recently used are dropped first."""


class ModelCache:
    """A bounded cache of parsed objects."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._models: LRUCache[str, tuple[int, Resource]] = LRUCache(kept)

    def read(self, kind: type[R], entry: CachedObject) -> R:
        """Return an object of the store as a model of its kind.

        Raises
        ------
        pydantic.ValidationError
            When the object breaks a rule of its kind, which the server refuses.
        """
        kept = self._models.get(entry.uid)
        if kept is not None and kept[0] == entry.version and isinstance(kept[1], kind):
            return kept[1]
        model = kind.read(entry.decode())
        self._models[entry.uid] = (entry.version, model)
        return model

    def forget(self, uid: str) -> None:
        """Drop the model of an object that is gone."""
        self._models.pop(uid, None)


_KEPT_BYTES = 64 * 1024**2
"""Memory of cached files with what they were parsed to; the least recently used are dropped."""


class ConfigCache:
    """A bounded cache of parsed files of Enclaves.

    Each was admitted when its Enclave was created, by the settings of that time. No later setting
    refuses it here: every amount is valid, and strict rules are warnings.
    """

    def __init__(self, *, max_bytes: int = _KEPT_BYTES) -> None:
        self._parsed: LRUCache[bytes, tuple[ParsedConfig, int]] = LRUCache(
            max_bytes, getsizeof=lambda kept: kept[1]
        )

    @property
    def size(self) -> int:
        """Memory of the files that are kept, in bytes."""
        return int(self._parsed.currsize)

    async def parse(self, raw: bytes) -> ParsedConfig:
        """Parse the bytes of a file, outside the event loop."""
        kept = self._parsed.get(raw)
        if kept is None:
            # A large file takes milliseconds, which would block the event loop.
            kept = await asyncio.to_thread(self._parse, raw)
            if kept[1] <= self._parsed.maxsize:
                self._parsed[raw] = kept
        return kept[0]

    def _parse(self, raw: bytes) -> tuple[ParsedConfig, int]:
        """Parse a file; return with it the memory that both take."""
        parsed = parse(raw, rules=STORED)
        return parsed, memory_size((raw, parsed))


_BUILT_BYTES = 64 * 1024**2
"""Built Enclaves at most, in bytes; one that was dropped is built again."""
_PARSED = 16
"""Bytes that a parsed file takes, for each byte of its text."""


_REFS: dict[type, KindRef] = {Container: CONTAINER, Enclave: ENCLAVE, Organization: ORGANIZATION}


@dataclass(slots=True)
class AttemptState:
    """What is remembered of one Enclave."""

    children_complete: bool | None = None
    """Whether its ConfigMap and snapshot are there; None if not known yet."""
    missing_api: str = ""
    """What it lacks while the API's address is not known, as a sentence; empty if there is
    nothing."""
    refused: str = ""
    """Why the API server permanently refuses one of its children; empty if it accepts all."""


@dataclass(slots=True)
class OrganizationState:
    """What is remembered of one Organization."""

    applied: dict[str, str] = field(default_factory=dict)
    """Manifests that were applied last in its namespace, as JSON by kind and name."""


class ReconcileMemory:
    """Entries by uid; owned by the process, used by reconcilers only in the event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._attempts: dict[str, AttemptState] = {}
        self._organizations: dict[str, OrganizationState] = {}
        self._refused: dict[str, tuple[str, str]] = {}
        self._deferred: dict[str, float] = {}
        self._built: FIFOCache[str, BuiltEnclave] = FIFOCache(_BUILT_BYTES, getsizeof=_size_of)
        self.kinds_counted = False
        """Whether the cluster's quota controller counts objects of our kinds."""
        store.subscribe(self._on_change)

    def __len__(self) -> int:
        """Return how many entries there are, of all kinds."""
        of_enclaves = (self._attempts, self._built)
        others = len(self._organizations) + len(self._refused) + len(self._deferred)
        return others + sum(len(each) for each in of_enclaves)

    def attempt(self, enclave: Enclave) -> AttemptState:
        """Return the entry of an Enclave; of one that has left the cache an entry nobody keeps."""
        known = self._attempts.get(enclave.metadata.uid)
        if known is None:
            known = AttemptState()
            if self._is_cached(enclave):
                self._attempts[enclave.metadata.uid] = known
        return known

    def organization(self, organization: Organization) -> OrganizationState:
        """Return the entry of an Organization; as `attempt`."""
        known = self._organizations.get(organization.metadata.uid)
        if known is None:
            known = OrganizationState()
            if self._is_cached(organization):
                self._organizations[organization.metadata.uid] = known
        return known

    def forget_applied(self) -> None:
        """Have every guard of a namespace applied again when it is needed next."""
        self._organizations.clear()

    def refuse(self, container: Container, revision: str, message: str) -> None:
        """Remember that the API server does not accept the Enclave of a request."""
        if self._is_cached(container):
            self._refused[container.metadata.uid] = (revision, message)

    def refused(self, container: Container) -> tuple[str, str] | None:
        """Return the last refused request and why; None if none was refused."""
        return self._refused.get(container.metadata.uid)

    def defer_status(
        self, resource: Container | Enclave, delay: timedelta, now: float
    ) -> timedelta | None:
        """Return how long a status that differs from the written one may still wait.

        Parameters
        ----------
        delay
            How long it may wait since it first differed.

        Returns
        -------
        timedelta | None
            None if it is written now.
        """
        since = now
        if self._is_cached(resource):
            since = self._deferred.setdefault(resource.metadata.uid, now)
        left = since + delay.total_seconds() - now
        return timedelta(seconds=left) if left > 0 else None

    def forget_deferred(self, resource: Container | Enclave) -> None:
        """Note that a status is written, or does not differ."""
        self._deferred.pop(resource.metadata.uid, None)

    def keep_built(self, built: BuiltEnclave) -> None:
        """Keep an Enclave whose ConfigMap was just created until its Pod is created."""
        if self._is_cached(built.plan.enclave):
            with contextlib.suppress(ValueError):  # larger than all that is kept
                self._built[built.plan.enclave.metadata.uid] = built

    def take_built(self, enclave: Enclave) -> BuiltEnclave | None:
        """Return an Enclave as it was built, once; None: it must be built from its ConfigMap."""
        found: BuiltEnclave | None = self._built.pop(enclave.metadata.uid, None)
        return found

    def _is_cached(self, resource: Container | Enclave | Organization) -> bool:
        """Return whether the cache has an object.

        A reconcile under way may outlast its object: what it remembers then would never be dropped.
        """
        ref = _REFS[type(resource)]
        entry = self._store.get(ref, resource.metadata.namespace or "", resource.metadata.name)
        return entry is not None and entry.uid == resource.metadata.uid

    def _on_change(self, change: StoreChange) -> None:
        """Drop the entries of an object that was removed, or replaced by one of its name."""
        gone = change.before
        if gone is None or (change.after is not None and change.after.uid == gone.uid):
            return
        self._deferred.pop(gone.uid, None)
        if change.ref == ENCLAVE:
            self._attempts.pop(gone.uid, None)
            self._built.pop(gone.uid, None)
        elif change.ref == CONTAINER:
            self._refused.pop(gone.uid, None)
        elif change.ref == ORGANIZATION:
            self._organizations.pop(gone.uid, None)


def _size_of(built: BuiltEnclave) -> int:
    """Return about how many bytes a built Enclave takes."""
    texts = sum(map(len, built.documents.values())) + len(built.measurement.text)
    return texts + len(built.plan.file) * _PARSED
