"""Every write of the operator.

Counted, fenced by the Lease, and in the informer cache immediately.

Status changes are merge patches of the difference; an Event follows when conditions changed.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from cloister_clients.clock import Clock, utc_now
from cloister_clients.kube import Conflict, KindRef, KubeClient, KubeError, NotFound, Unavailable
from cloister_clients.kube.kinds import EVENT
from cloister_crds.kinds import Enclave
from cloister_operator.cache.projections import Body
from cloister_operator.cache.store import CachedObject, Store
from cloister_operator.rollout.decision import enclave_event, status_event
from cloister_operator.telemetry.metrics import OperatorMetrics
from cloister_operator.workqueue.triggers import Key

Object = dict[str, Any]


def merge_patch(before: Object, after: Object) -> Object:
    """Return the patch that turns one object into another (RFC 7396, "JSON Merge Patch").

    Parameters
    ----------
    before
        The present object.

    Returns
    -------
    dict[str, Any]
        The changed keys; null for removed ones. Empty when the two are equal. Lists are replaced
        as a whole.
    """
    patch: Object = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            inner = merge_patch(old, value)
            if inner:
                patch[name] = inner
        elif name not in before or value != old:
            patch[name] = value
    return patch


_CONTROLLER = "cloister.dev/operator"
_NOTE_LIMIT = 1024
"""Longest note that the server takes, in bytes."""
_NOWHERE = "default"
"""Namespace of Events about objects that have none."""


def build_event(
    ref: KindRef, before: Mapping[str, Any] | None, after: Mapping[str, Any], now: datetime
) -> dict[str, Any] | None:
    """Build the Event that reports a written status.

    Parameters
    ----------
    before
        The object before the write; None if the cache lacked it.
    now
        The time, in UTC.

    Returns
    -------
    dict[str, Any] | None
        Manifest to create, whose name follows from the written version; None if there is nothing
        to report.
    """
    statuses = (before or {}).get("status") or {}, after.get("status") or {}
    if ref.kind == Enclave.INFO.kind:
        found = enclave_event(after["spec"], *statuses)
    else:
        found = status_event(*statuses)
    if found is None:
        return None
    metadata = after["metadata"]
    namespace = metadata.get("namespace") or _NOWHERE
    regarding = {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "name": metadata["name"],
        "namespace": metadata.get("namespace") or "",
        "uid": metadata["uid"],
    }
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {
            "name": f"{metadata['uid']}.{metadata['resourceVersion']}",
            "namespace": namespace,
        },
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": _CONTROLLER,
        "reportingInstance": _CONTROLLER,
        "action": "Reconcile",
        "reason": found.reason,
        "regarding": {key: value for key, value in regarding.items() if value},
        "note": _cut(found.message),
        "type": "Warning" if found.warning else "Normal",
    }


def _cut(text: str) -> str:
    """Shorten a text to what the server takes, between two characters."""
    return text.encode()[:_NOTE_LIMIT].decode(errors="ignore")


MOST = 64
"""Events that wait at most; further ones are dropped."""

Event = dict[str, Any]


class EventQueue:
    """Sends Events one after the other, without holding up who records them."""

    def __init__(
        self, send: Callable[[Event], Awaitable[None]], *, busy: Callable[[], bool]
    ) -> None:
        """Prepare.

        Parameters
        ----------
        send
            Sends one Event; it raises nothing that is not a defect.
        busy
            Returns whether other work waits: Events about what is well are dropped then.
        """
        self._send = send
        self._busy = busy
        self._waiting: deque[Event] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, event: Event) -> None:
        """Have an Event sent; a Normal one only while nothing more important waits."""
        if len(self._waiting) >= MOST or (event["type"] == "Normal" and self._busy()):
            return
        self._waiting.append(event)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="events")

    async def aclose(self) -> None:
        """Drop what waits."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while self._waiting:
            await self._send(self._waiting.popleft())


FIELD_MANAGER = "cloister-operator"
"""Field manager of every write of the operator."""

logger = logging.getLogger(__name__)


class LeadershipLost(Exception):  # noqa: N818 - it names the event
    """The process no longer leads: another one may be writing already."""


class ClusterWriter:
    """The writes of one process.

    Each method takes the key that is reconciled: a write without a response is uncertain, and is
    read before that key is reconciled again. All raise `KubeError` when the server refuses or
    cannot be reached, and `LeadershipLost` when this process no longer leads.
    """

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        metrics: OperatorMetrics,
        *,
        leads: Callable[[], bool] = lambda: True,
        busy: Callable[[], bool] = lambda: False,
        clock: Clock = utc_now,
    ) -> None:
        self._clock = clock
        self._client = client
        self._store = store
        self._metrics = metrics
        self._leads = leads
        self._events = EventQueue(self._post_event, busy=busy)
        self._uncertain: defaultdict[Key, set[tuple[KindRef, str, str]]] = defaultdict(set)

    async def create(self, key: Key, ref: KindRef, body: Object) -> Object:
        """Create an object by POST.

        Raises
        ------
        AlreadyExists
            When the name is taken; the object that has it is not read.
        """
        metadata = body["metadata"]
        place = (ref, metadata.get("namespace") or "", metadata["name"])
        self._check_and_count("create", ref)
        try:
            response = await self._client.create(ref, body)
        except Unavailable:
            self._uncertain[key].add(place)
            raise
        return self._to_cache(ref, response)

    async def apply(self, key: Key, ref: KindRef, body: Object) -> Object:
        """Apply an object server-side, taking over fields of other managers.

        It is created by POST when it is not known, else only the known version is changed. An
        object that is not watched is read live first.

        Raises
        ------
        Conflict
            When it is no longer that version, is gone, or exists already; it is read before the
            next reconcile.
        """
        metadata = body["metadata"]
        place = (ref, metadata.get("namespace") or "", metadata["name"])
        known = (
            self._cached_identity(place)
            if ref in self._store.kinds
            else await self._live_identity(place)
        )
        # The Lease may have been lost during the read.
        self._check_and_count("apply", ref)
        try:
            if known is None:
                response = await self._client.create(ref, body)
            else:
                # Without the uid the server would create what is gone meanwhile.
                metadata = {**metadata, **known}
                response = await self._client.apply(ref, {**body, "metadata": metadata})
        except (Conflict, Unavailable):
            self._uncertain[key].add(place)
            raise
        return self._to_cache(ref, response)

    async def patch_status(
        self, key: Key, ref: KindRef, namespace: str, name: str, patch: Object
    ) -> Object:
        """Merge a patch into the status of an object, of the version that is known.

        Raises
        ------
        Conflict
            When it is no longer that version, or the one that the patch names; it is read before
            the next reconcile.
        """
        place = (ref, namespace, name)
        self._check_and_count("status", ref)
        before = self._store.get(ref, namespace, name)
        version = self._cached_version(place)
        # A reconciler that decided on an older version names that one itself.
        if version is not None and "metadata" not in patch:
            patch = {"metadata": {"resourceVersion": version}, **patch}
        try:
            response = await self._client.merge_patch(
                ref, name, patch, namespace or None, subresource="status"
            )
        except (Conflict, Unavailable):
            self._uncertain[key].add(place)
            raise
        self._report_event(ref, before, response)
        return self._to_cache(ref, response)

    async def patch(
        self, key: Key, ref: KindRef, namespace: str, name: str, patch: Object
    ) -> Object:
        """Merge a patch into an object.

        Raises
        ------
        Conflict
            When the patch carries a resourceVersion and the object is no longer that one.
        """
        self._check_and_count("patch", ref)
        try:
            response = await self._client.merge_patch(ref, name, patch, namespace or None)
        except (Conflict, Unavailable):
            self._uncertain[key].add((ref, namespace, name))
            raise
        return self._to_cache(ref, response)

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
        """Delete the object with a uid; one that is gone already is not an error.

        Raises
        ------
        Conflict
            When another object has the name, or it is no longer that version.
        """
        self._check_and_count("delete", ref)
        try:
            response = await self._client.delete(
                ref,
                name,
                namespace or None,
                uid=uid,
                resource_version=resource_version,
                propagation=propagation,
            )
        except NotFound:
            response = {"kind": "Status"}
        except (Conflict, Unavailable):
            self._uncertain[key].add((ref, namespace, name))
            raise
        if ref not in self._store.kinds:
            return
        # Of an object that went meanwhile the server returns its kind and nothing else.
        if response.get("kind") == ref.kind and response["metadata"].get("resourceVersion"):
            self._to_cache(ref, response)
        else:
            self._remove_from_cache(ref, namespace, name, uid)

    async def read_uncertain(self, key: Key) -> None:
        """Read live what an earlier write for this key left uncertain.

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
        """Read an object live into the store; None if it does not exist.

        Raises
        ------
        KubeError
            When the server refuses or cannot be reached.
        """
        try:
            body = await self._client.get(ref, name, namespace or None)
        except NotFound:
            if ref in self._store.kinds:
                self._remove_from_cache(ref, namespace, name, None)
            return None
        return self._to_cache(ref, body)

    async def aclose(self) -> None:
        """Drop the Events that were not posted yet."""
        await self._events.aclose()

    def _report_event(self, ref: KindRef, before: CachedObject | None, after: Object) -> None:
        """Have an Event about a changed status posted, where it calls for one."""
        event = build_event(ref, before.decode() if before else None, after, self._clock())
        if event is not None:
            self._events.add(event)

    async def _post_event(self, event: Object) -> None:
        """Post an Event; a failure to do so is only logged."""
        try:
            self._check_and_count("create", EVENT)
            await self._client.create(EVENT, event)
        except (KubeError, LeadershipLost) as error:
            about = event["regarding"]
            logger.info(
                "an Event of %s %s could not be posted: %s", about["kind"], about["name"], error
            )

    def _cached_version(self, place: tuple[KindRef, str, str]) -> str | None:
        """Return the cached version of an object; None if it is not cached, or not watched."""
        known = self._cached_identity(place)
        return None if known is None else known["resourceVersion"]

    def _cached_identity(self, place: tuple[KindRef, str, str]) -> dict[str, str] | None:
        """Return uid and version of a cached object; None if it is not cached, or not watched."""
        entry = self._store.get(*place) if place[0] in self._store.kinds else None
        return None if entry is None else {"uid": entry.uid, "resourceVersion": str(entry.version)}

    async def _live_identity(self, place: tuple[KindRef, str, str]) -> dict[str, str] | None:
        """Read uid and version of an object live; None if it does not exist."""
        ref, namespace, name = place
        try:
            body = await self._client.get(ref, name, namespace or None)
        except NotFound:
            return None
        return {name: str(body["metadata"][name]) for name in ("uid", "resourceVersion")}

    def _check_and_count(self, verb: str, ref: KindRef) -> None:
        """Count a write, or refuse it when another process may lead (fencing)."""
        if not self._leads():
            raise LeadershipLost("this process no longer holds the Lease and writes nothing")
        self._metrics.written(verb, ref.kind)

    def _to_cache(self, ref: KindRef, body: Object) -> Object:
        """Update the cache with the server's response, if the kind is watched."""
        if ref in self._store.kinds:
            self._store.put(ref, body)
        return body

    def _remove_from_cache(self, ref: KindRef, namespace: str, name: str, uid: str | None) -> None:
        """Remove an object that the server reports as gone."""
        entry = self._store.get(ref, namespace, name)
        if entry is not None and uid in (None, entry.uid):
            self._store.remove(ref, namespace, name, entry.version)
