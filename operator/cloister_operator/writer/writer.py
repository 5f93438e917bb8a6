"""Every write of the operator: counted, fenced by the Lease, and seen by the store at once.

The server's answer to a write goes straight into the store, so that the next pass of a key builds
on its own last writes; an older event cannot undo that. Where no answer came, or another version
was met, the object is read live before the key is looked at again.

A leader that was frozen between its look at the Lease and a write sends that write when it wakes
up. So each write of an object names the version that this process knows: what a successor wrote
meanwhile is not undone. An object of a kind that is not watched is read just before.
"""

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from cloister_clients.clock import Clock, utc_now
from cloister_clients.kube import (
    Conflict,
    KindRef,
    KubeClient,
    KubeError,
    NotFound,
    Unavailable,
)
from cloister_clients.kube.kinds import EVENT
from cloister_operator.cache.projections import Body
from cloister_operator.cache.store import CachedObject, Store
from cloister_operator.telemetry.metrics import OperatorMetrics
from cloister_operator.workqueue.keys import Key
from cloister_operator.writer.events import build_event

__all__ = ["ClusterWriter", "LeadershipLost"]

logger = logging.getLogger(__name__)

Object = dict[str, Any]


class LeadershipLost(Exception):  # noqa: N818 - it says what happened
    """The process no longer leads: another one may be writing already."""


class ClusterWriter:
    """Writes for one process.

    Each method names the key whose pass writes, so that a lost answer can be made up for.
    """

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        metrics: OperatorMetrics,
        *,
        leads: Callable[[], bool] = lambda: True,
        clock: Clock = utc_now,
    ) -> None:
        self._clock = clock
        self._client = client
        self._store = store
        self._metrics = metrics
        self._leads = leads
        self._uncertain: defaultdict[Key, set[tuple[KindRef, str, str]]] = defaultdict(set)

    async def create(self, key: Key, ref: KindRef, body: Object) -> Object:
        """Create an object by POST.

        Raises
        ------
        AlreadyExists
            When the name is taken; the object that has it is not read.
        KubeError
            When the server refuses or cannot be reached.
        LeadershipLost
            When this process no longer leads.
        """
        metadata = body["metadata"]
        place = (ref, metadata.get("namespace") or "", metadata["name"])
        self._begin("create", ref)
        try:
            answer = await self._client.create(ref, body)
        except Unavailable:
            self._uncertain[key].add(place)
            raise
        return self._seen(ref, answer)

    async def apply(self, key: Key, ref: KindRef, body: Object) -> Object:
        """Apply an object server-side, taking over fields of other managers.

        It is created by POST when none is known, else only the version that is known is changed.
        What is not watched is read live first.

        Raises
        ------
        Conflict
            When it is no longer that version, or exists already; it is read before the next pass.
        KubeError
            When the server refuses or cannot be reached.
        LeadershipLost
            When this process no longer leads.
        """
        metadata = body["metadata"]
        place = (ref, metadata.get("namespace") or "", metadata["name"])
        version = self._version(place) if ref in self._store.kinds else await self._read(place)
        # The Lease may have been lost during the read.
        self._begin("apply", ref)
        try:
            if version is None:
                answer = await self._client.create(ref, body)
            else:
                metadata = {**metadata, "resourceVersion": version}
                answer = await self._client.apply(ref, {**body, "metadata": metadata})
        except (Conflict, Unavailable):
            self._uncertain[key].add(place)
            raise
        return self._seen(ref, answer)

    async def patch_status(
        self, key: Key, ref: KindRef, namespace: str, name: str, patch: Object
    ) -> Object:
        """Merge a patch into the status of an object, of the version that is known.

        Raises
        ------
        Conflict
            When it is no longer that version, or the one that the patch names; it is read before
            the next pass.
        KubeError
            When the server refuses or cannot be reached.
        LeadershipLost
            When this process no longer leads.
        """
        place = (ref, namespace, name)
        self._begin("status", ref)
        before = self._store.get(ref, namespace, name)
        version = self._version(place)
        if version is not None and "metadata" not in patch:
            patch = {"metadata": {"resourceVersion": version}, **patch}
        try:
            answer = await self._client.merge_patch(
                ref, name, patch, namespace or None, subresource="status"
            )
        except (Conflict, Unavailable):
            self._uncertain[key].add(place)
            raise
        await self._tell(ref, before, answer)
        return self._seen(ref, answer)

    async def patch(
        self, key: Key, ref: KindRef, namespace: str, name: str, patch: Object
    ) -> Object:
        """Merge a patch into an object.

        Raises
        ------
        Conflict
            When the patch carries a resourceVersion and the object is no longer that one.
        KubeError
            When the server refuses or cannot be reached.
        LeadershipLost
            When this process no longer leads.
        """
        self._begin("patch", ref)
        try:
            answer = await self._client.merge_patch(ref, name, patch, namespace or None)
        except (Conflict, Unavailable):
            self._uncertain[key].add((ref, namespace, name))
            raise
        return self._seen(ref, answer)

    async def delete(
        self,
        key: Key,
        ref: KindRef,
        namespace: str,
        name: str,
        *,
        uid: str,
        resource_version: str | None = None,
        propagation: str | None = None,
    ) -> None:
        """Delete one certain object; that it is gone already is no error.

        Raises
        ------
        Conflict
            When another object has the name, or it is no longer that version.
        KubeError
            When the server refuses or cannot be reached.
        LeadershipLost
            When this process no longer leads.
        """
        self._begin("delete", ref)
        try:
            answer = await self._client.delete(
                ref,
                name,
                namespace or None,
                uid=uid,
                resource_version=resource_version,
                propagation=propagation,
            )
        except NotFound:
            answer = {"kind": "Status"}
        except (Conflict, Unavailable):
            self._uncertain[key].add((ref, namespace, name))
            raise
        if ref not in self._store.kinds:
            return
        if answer.get("kind") == ref.kind:
            self._seen(ref, answer)
        else:
            self._forget(ref, namespace, name, uid)

    async def read_uncertain(self, key: Key) -> None:
        """Read live what a write of this key left uncertain.

        Raises
        ------
        KubeError
            When the server still cannot be reached.
        """
        for place in tuple(self._uncertain.get(key, ())):
            await self.refresh(*place)
            self._uncertain[key].discard(place)
        self._uncertain.pop(key, None)

    async def refresh(self, ref: KindRef, namespace: str, name: str) -> Body | None:
        """Read an object live into the store; None = it does not exist.

        Raises
        ------
        KubeError
            When the server refuses or cannot be reached.
        """
        try:
            body = await self._client.get(ref, name, namespace or None)
        except NotFound:
            if ref in self._store.kinds:
                self._forget(ref, namespace, name, None)
            return None
        return self._seen(ref, body)

    async def _tell(self, ref: KindRef, before: CachedObject | None, after: Object) -> None:
        """Post an Event of what a status says anew; one that is lost is no failure of a pass."""
        event = build_event(ref, before.decode() if before else None, after, self._clock())
        if event is None:
            return
        self._begin("create", EVENT)
        try:
            await self._client.create(EVENT, event)
        except KubeError as error:
            logger.info("an Event of %s %s is lost: %s", ref.kind, after["metadata"]["name"], error)

    def _version(self, place: tuple[KindRef, str, str]) -> str | None:
        """Answer the version of an object that is known; None = none is, or it is not watched."""
        entry = self._store.get(*place) if place[0] in self._store.kinds else None
        return None if entry is None else str(entry.version)

    async def _read(self, place: tuple[KindRef, str, str]) -> str | None:
        """Read the present version of an object; None = there is none."""
        ref, namespace, name = place
        try:
            body = await self._client.get(ref, name, namespace or None)
        except NotFound:
            return None
        return str(body["metadata"]["resourceVersion"])

    def _begin(self, verb: str, ref: KindRef) -> None:
        """Count a write, and refuse it when another process may lead."""
        if not self._leads():
            raise LeadershipLost("the Lease is no longer ours; nothing is written")
        self._metrics.written(verb, ref.kind)

    def _seen(self, ref: KindRef, body: Object) -> Object:
        """Put the server's answer into the store, if it keeps that kind."""
        if ref in self._store.kinds:
            self._store.put(ref, body)
        return body

    def _forget(self, ref: KindRef, namespace: str, name: str, uid: str | None) -> None:
        """Take out what the server says is gone."""
        entry = self._store.get(ref, namespace, name)
        if entry is not None and uid in (None, entry.uid):
            self._store.remove(ref, namespace, name, entry.version)
