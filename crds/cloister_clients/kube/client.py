"""The verbs of the Kubernetes API over one connection pool; objects are plain dicts.

Used by both programs. It decides nothing: errors of `cloister_clients.kube.errors` go to the
caller. Sources: Kubernetes, "API Concepts" (lists in chunks, watches, bookmarks) and
"Server-Side Apply".
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

import msgspec

from cloister_clients.clock import ServerClock
from cloister_clients.kube.config import KubeConfig
from cloister_clients.kube.errors import Unavailable
from cloister_clients.kube.kinds import KindRef, Object, WatchEvent, complete, read_event, selectors
from cloister_clients.kube.transport import (
    ApiRequest,
    ResponseObserver,
    Transport,
    TransportLimits,
    encode,
)

__all__ = ["KubeClient", "ListPage", "Object", "WatchEvent"]

METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
WATCH_GRACE = 30.0
"""Seconds that a watch may outlive its requested time before it counts as dead."""


@dataclass(frozen=True, slots=True)
class ListPage:
    """A part of a list."""

    items: tuple[Object, ...]
    """Objects, with apiVersion and kind."""
    resource_version: str
    """State that the whole list shows; a watch continues from here."""


class KubeClient:
    """Talks to one API server as one user."""

    def __init__(
        self,
        config: KubeConfig,
        *,
        field_manager: str,
        user_agent: str,
        limits: TransportLimits = TransportLimits(),  # noqa: B008 - frozen
        observe: ResponseObserver | None = None,
    ) -> None:
        self.config = config
        """The configuration it was made with."""
        self.field_manager = field_manager
        """Name under which the server records who set a field."""
        self.clock = ServerClock()
        """The time as the server has it; that of this machine until the first response."""
        self._transport = Transport(
            config, user_agent=user_agent, limits=limits, clock=self.clock, observe=observe
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    async def server_version(self) -> str:
        """Return the version of the API server, such as ``v1.36.3``."""
        return str((await self._json(ApiRequest("GET", "/version", {})))["gitVersion"])

    async def text(self, path: str, query: dict[str, str], *, largest: int) -> str:
        """Return the text at a path, such as a log; an error beyond `largest` bytes."""
        request = ApiRequest("GET", path, query, accept="*/*", largest=largest)
        return (await self._transport.send(request)).decode(errors="replace")

    @asynccontextmanager
    async def text_lines(
        self, path: str, query: dict[str, str], *, longest: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a text that continues, such as a log, by lines; one beyond `longest` is divided."""
        request = ApiRequest("GET", path, query, accept="*/*", largest=longest)
        async with self._transport.stream(request) as found:
            yield found

    async def get(
        self,
        ref: KindRef,
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Object:
        """Read one object, as it is now, or a subresource of it such as ``scale``.

        Raises
        ------
        NotFound
            When there is no such object.
        KubeError
            When the server refuses or cannot be reached.
        """
        path = ref.path(namespace, name, subresource)
        return await self._json(ApiRequest("GET", path, {}, repeatable=True))

    async def list_pages(
        self,
        ref: KindRef,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int = 500,
        metadata_only: bool = False,
        at: str | None = None,
    ) -> AsyncGenerator[ListPage, None]:
        """Read a list in chunks; all chunks show the same state.

        Parameters
        ----------
        namespace
            Namespace; None means all, or a kind without.
        label_selector
            Selector of labels; None means all objects.
        field_selector
            Selector of fields; None means all objects.
        limit
            Objects of a chunk at most; 0 means no chunks, which the server may serve from its
            cache.
        metadata_only
            Whether objects are without spec and status.
        at
            resourceVersion of the state that is listed, kept for some minutes; None means the
            newest.

        Raises
        ------
        Gone
            When the state is no longer kept, also since reading took so long: list again.
        KubeError
            When the server refuses or cannot be reached.
        """
        query = selectors(label_selector, field_selector)
        if limit:
            query["limit"] = str(limit)
        state = {"resourceVersion": at, "resourceVersionMatch": "Exact"} if at else {}
        accept = METADATA_LIST if metadata_only else "application/json"
        while True:
            body = await self._json(
                ApiRequest(
                    "GET", ref.path(namespace), query | state, accept=accept, repeatable=True
                )
            )
            meta = body.get("metadata") or {}
            items = tuple(body.get("items") or ())
            for item in items:
                if not metadata_only:
                    # Lists of built-in kinds omit both; every reader may rely on them.
                    item.setdefault("apiVersion", ref.api_version)
                    item.setdefault("kind", ref.kind)
            yield ListPage(items, str(meta.get("resourceVersion") or ""))
            if not meta.get("continue"):
                return
            query["continue"], state = meta["continue"], {}

    async def list(
        self,
        ref: KindRef,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
        at: str | None = None,
    ) -> ListPage:
        """Read a whole list, consistent with all writes before it.

        Takes what `list_pages` takes.

        Raises
        ------
        KubeError
            When the server refuses or cannot be reached.
        """
        items: tuple[Object, ...] = ()
        version = ""
        pages = self.list_pages(
            ref,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            metadata_only=metadata_only,
            at=at,
        )
        async for page in pages:
            items, version = items + page.items, page.resource_version
        return ListPage(items, version)

    async def list_content(
        self, ref: KindRef, *, label_selector: str | None = None, largest: int
    ) -> bytes:
        """Read a whole list in one response, and return it as the server sent it.

        For lists that are not kept in etcd, which are never sent in chunks.

        Parameters
        ----------
        label_selector
            Selector of labels; None means all objects.
        largest
            Most bytes of the response.

        Raises
        ------
        KubeError
            When the server refuses or cannot be reached, or the list is larger.
        """
        query = selectors(label_selector, None)
        request = ApiRequest("GET", ref.path(), query, repeatable=True, largest=largest)
        return await self._transport.send(request)

    async def create(
        self,
        ref: KindRef,
        body: Object,
        namespace: str | None = None,
        *,
        dry_run: bool = False,
    ) -> Object:
        """Create an object and return it as the server keeps it.

        Parameters
        ----------
        body
            The object; apiVersion and kind are added where missing.
        namespace
            Namespace; None means metadata.namespace of the body.

        Raises
        ------
        AlreadyExists
            When the name is taken.
        Invalid
            When the object breaks a rule of its kind, or has an unknown field.
        KubeError
            When the server refuses or cannot be reached; in the latter case the object may exist.
        """
        where = namespace or body.get("metadata", {}).get("namespace")
        query = self._write_query(dry_run=dry_run)
        return await self._json(
            ApiRequest("POST", ref.path(where), query, encode(complete(ref, body)))
        )

    async def apply(
        self,
        ref: KindRef,
        body: Object,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        force: bool = True,
        dry_run: bool = False,
    ) -> Object:
        """Apply an object server-side: create it, or set the fields of the body.

        Parameters
        ----------
        body
            The fields that this manager wants; those it wanted before and left out are removed.
        namespace
            Namespace; None means metadata.namespace of the body.
        subresource
            Such as ``status``; None means the object itself.

        Raises
        ------
        Conflict
            When another manager owns a field with another value and `force` is off.
        KubeError
            When the server refuses or cannot be reached.
        """
        meta = body.get("metadata", {})
        path = ref.path(namespace or meta.get("namespace"), meta["name"], subresource)
        query = {**self._write_query(dry_run=dry_run), "force": "true" if force else "false"}
        payload = encode(complete(ref, body))
        request = ApiRequest("PATCH", path, query, payload, APPLY_PATCH, repeatable=True)
        return await self._json(request)

    async def merge_patch(
        self,
        ref: KindRef,
        name: str,
        patch: Object,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Change the keys of the patch (RFC 7396); null removes a key.

        Parameters
        ----------
        patch
            The changed keys; with ``metadata.resourceVersion`` only that version is changed.
        namespace
            Its namespace; None for kinds without.
        subresource
            Such as ``status``; None means the object itself.

        Raises
        ------
        NotFound
            When there is no such object.
        Conflict
            When the object is no longer the version of the patch.
        KubeError
            When the server refuses or cannot be reached; in the latter case it may be done.
        """
        path = ref.path(namespace, name, subresource)
        query = self._write_query(dry_run=dry_run)
        # With a version the second sending would find its own work and return Conflict.
        repeatable = "resourceVersion" not in patch.get("metadata", {})
        request = ApiRequest(
            "PATCH", path, query, encode(patch), MERGE_PATCH, repeatable=repeatable
        )
        return await self._json(request)

    async def replace(
        self,
        ref: KindRef,
        body: Object,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Object:
        """Put a whole object in the place of the one with its resourceVersion.

        Raises
        ------
        Conflict
            When the object is no longer that version.
        KubeError
            When the server refuses or cannot be reached; in the latter case it may be done.
        """
        meta = body["metadata"]
        path = ref.path(namespace or meta.get("namespace"), meta["name"], subresource)
        payload = encode(complete(ref, body))
        return await self._json(ApiRequest("PUT", path, self._write_query(), payload))

    async def delete(
        self,
        ref: KindRef,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period: int | None = None,
        propagation: str | None = None,
    ) -> Object:
        """Delete an object, or begin to where it has finalizers or a grace period.

        Parameters
        ----------
        namespace
            Its namespace; None for kinds without.
        uid
            Only the object with this uid; None means whichever has the name.
        resource_version
            Only this version of it; None means any.
        grace_period
            Seconds that a Pod gets; None means its own.
        propagation
            Foreground, Background or Orphan; None means the kind's default.

        Raises
        ------
        NotFound
            When there is no such object.
        Conflict
            When the object is another one, or another version.
        KubeError
            When the server refuses or cannot be reached.
        """
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        given = {key: value for key, value in preconditions.items() if value is not None}
        if given:
            options["preconditions"] = given
        if grace_period is not None:
            options["gracePeriodSeconds"] = grace_period
        if propagation is not None:
            options["propagationPolicy"] = propagation
        path = ref.path(namespace, name)
        return await self._json(ApiRequest("DELETE", path, {}, encode(options), repeatable=True))

    async def watch(
        self,
        ref: KindRef,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str | None = None,
        field_selector: str | None = None,
        seconds: int = 240,
        metadata_only: bool = False,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Follow the changes after a state; it ends when its time is over.

        Parameters
        ----------
        namespace
            Namespace; None means all, or a kind without.
        resource_version
            State to begin after, from a `ListPage` or an earlier event.
        label_selector
            Selector of labels; None means all objects.
        field_selector
            Selector of fields; None means all objects.
        seconds
            How long the server should keep it open.
        metadata_only
            Whether objects are without spec and status.

        Raises
        ------
        Gone
            When the state is no longer kept: list again.
        KubeError
            When the server refuses, cannot be reached, or the connection breaks.
        """
        query = {
            **selectors(label_selector, field_selector),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
        }
        accept = METADATA if metadata_only else "application/json"
        request = ApiRequest("GET", ref.path(namespace), query, accept=accept)
        # The server ends a watch in time; without this limit a dead connection would wait forever.
        end = asyncio.get_running_loop().time() + seconds + WATCH_GRACE
        async with self._transport.stream(request) as lines:
            while True:
                try:
                    async with asyncio.timeout_at(end):
                        line = await anext(lines)
                except StopAsyncIteration:
                    return
                except TimeoutError as error:
                    raise Unavailable(0, "Unreachable", "the watch outlived its time") from error
                yield read_event(line)

    def _write_query(self, *, dry_run: bool = False) -> dict[str, str]:
        # Strict: an unknown field is an error of ours and must not be dropped in silence.
        query = {"fieldManager": self.field_manager, "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        return query

    async def _json(self, request: ApiRequest) -> Object:
        content = await self._transport.send(request)
        try:
            body = msgspec.json.decode(content)
        except msgspec.DecodeError as error:
            raise Unavailable(
                0, "BadResponse", "the API server did not respond with JSON"
            ) from error
        if not isinstance(body, dict):
            raise Unavailable(0, "BadResponse", "the API server did not respond with an object")
        return body
