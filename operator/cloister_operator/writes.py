"""Every write of the operator: counted, fenced by the Lease, and seen by the store at once.

The server's answer to a write goes straight into the store, so that the next pass of a key builds
on its own last writes; an older event cannot undo that. Where no answer came, the object is read
live before the key is looked at again.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from cloister_clients.kube import KindRef, KubeClient, NotFound, Unavailable
from cloister_operator.keys import Key
from cloister_operator.metrics import Metrics
from cloister_operator.store import Store
from cloister_operator.watched import WATCHED, Body

__all__ = ["LeadershipLost", "Writer"]

Object = dict[str, Any]
_STORED = {each.ref for each in WATCHED}


class LeadershipLost(Exception):  # noqa: N818 - it says what happened
    """The process no longer leads: another one may be writing already."""


class Writer:
    """Writes for one process.

    Each method names the key whose pass writes, so that a lost answer can be made up for.
    """

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        metrics: Metrics,
        *,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
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

        Raises
        ------
        KubeError
            When the server refuses or cannot be reached.
        LeadershipLost
            When this process no longer leads.
        """
        metadata = body["metadata"]
        place = (ref, metadata.get("namespace") or "", metadata["name"])
        self._begin("apply", ref)
        try:
            answer = await self._client.apply(ref, body)
        except Unavailable:
            self._uncertain[key].add(place)
            raise
        return self._seen(ref, answer)

    async def patch_status(
        self, key: Key, ref: KindRef, namespace: str, name: str, patch: Object
    ) -> Object:
        """Merge a patch into the status of an object.

        Raises
        ------
        Conflict
            When the patch carries a resourceVersion and the object is no longer that one.
        KubeError
            When the server refuses or cannot be reached.
        LeadershipLost
            When this process no longer leads.
        """
        self._begin("status", ref)
        try:
            answer = await self._client.merge_patch(
                ref, name, patch, namespace or None, subresource="status"
            )
        except Unavailable:
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
        except Unavailable:
            self._uncertain[key].add((ref, namespace, name))
            raise
        if ref not in _STORED:
            return
        if answer.get("kind") == ref.kind:
            self._seen(ref, answer)
        else:
            self._forget(ref, namespace, name, uid)

    async def settle(self, key: Key) -> None:
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
            if ref in _STORED:
                self._forget(ref, namespace, name, None)
            return None
        return self._seen(ref, body)

    def _begin(self, verb: str, ref: KindRef) -> None:
        """Count a write, and refuse it when another process may lead."""
        if not self._leads():
            raise LeadershipLost("the Lease is no longer ours; nothing is written")
        self._metrics.add("writes_total", verb=verb, kind=ref.kind)

    def _seen(self, ref: KindRef, body: Object) -> Object:
        """Put the server's answer into the store, if it keeps that kind."""
        if ref in _STORED:
            self._store.put(ref, body)
        return body

    def _forget(self, ref: KindRef, namespace: str, name: str, uid: str | None) -> None:
        """Take out what the server says is gone."""
        entry = self._store.get(ref, namespace, name)
        if entry is not None and uid in (None, entry.uid):
            self._store.remove(ref, namespace, name, entry.version)
