"""kopf as the watch stream of the informer: events update the cache, changes enqueue keys.

Its storages are empty: what kopf would write into objects is not even computed.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import aiohttp
import kopf
from typing_extensions import override
from yarl import URL

from cloister_clients.kube import KindRef, KubeConfig
from cloister_operator.cache.projections import WatchedKind
from cloister_operator.cache.store import StoreChange
from cloister_operator.context import USER_AGENT, ProcessContext
from cloister_operator.workqueue.triggers import is_low_priority, triggers_of


class NullDiffBaseStorage(kopf.DiffBaseStorage):
    """A diff base under which all objects are equal."""

    @override
    def build(
        self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None
    ) -> kopf.BodyEssence:
        """Return the part of an object that is compared: nothing."""
        return kopf.BodyEssence()

    @override
    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Return what was stored: nothing."""
        return None

    @override
    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Store nothing."""


class NullProgressStorage(kopf.ProgressStorage):
    """A progress storage without content: handlers for events have no progress."""

    @override
    def fetch(self, *, key: Any, body: kopf.Body) -> Any:
        """Return what was stored: nothing."""
        return None

    @override
    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Store nothing."""

    @override
    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Remove nothing."""

    @override
    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Change nothing."""

    @override
    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Return the compared part unchanged."""
        return essence


logger = logging.getLogger(__name__)

_LIST_CHUNK = 500


def make_registry(context: ProcessContext) -> kopf.OperatorRegistry:
    """Register an event handler for each watched kind, and the login handler."""
    registry = kopf.OperatorRegistry()
    context.store.subscribe(lambda change: _enqueue(context, change))
    kopf.on.login(registry=registry)(_login_handler(context))
    for watched in context.watched:
        ref = watched.ref
        handler = _event_handler(context, watched)
        kopf.on.event(ref.group, ref.version, ref.plural, registry=registry, id=ref.plural)(handler)
    return registry


def kopf_settings(kinds: Iterable[WatchedKind]) -> kopf.OperatorSettings:
    """Return kopf's settings for the watched kinds; nothing that matters is left to a default."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.posting.loggers = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.peering.mandatory = False
    settings.queueing.worker_limit = None
    settings.queueing.idle_timeout = 0.5
    settings.queueing.exit_timeout = 1.0
    settings.queueing.error_delays = (1, 2, 5, 10, 30, 60)
    settings.networking.request_timeout = 30.0
    settings.networking.connect_timeout = 10.0
    settings.networking.error_backoffs = (0.5, 1, 2, 3, 5, 8, 13, 21)
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10.0
    settings.watching.reconnect_backoff = 0.1
    settings.watching.inactivity_timeout = 90.0
    settings.watching.chunk_size = _LIST_CHUNK
    settings.process.ultimate_exiting_timeout = 15.0
    settings.persistence.finalizer = "cloister.dev/unused"
    settings.persistence.diffbase_storage = NullDiffBaseStorage()
    settings.persistence.progress_storage = NullProgressStorage()
    for watched in kinds:
        if watched.label_selector is not None:
            resource = (watched.ref.group, watched.ref.version, watched.ref.plural)
            settings.watching.label_selectors[resource] = watched.label_selector
    return settings


def _enqueue(context: ProcessContext, change: StoreChange) -> None:
    """Enqueue the keys that a change triggers."""
    for key, after in triggers_of(change, context.store):
        context.queue.add(key, after=after, low_priority=is_low_priority(change, key))


def _event_handler(context: ProcessContext, watched: WatchedKind) -> Callable[..., Awaitable[None]]:
    """Make the handler of one kind."""
    kind = watched.ref.kind

    async def handle(event: kopf.RawEvent, **_: Any) -> None:
        context.metrics.watch_event(kind)
        body = event["object"]
        metadata = body["metadata"]
        if event["type"] == "DELETED":
            context.store.remove(
                watched.ref,
                metadata.get("namespace") or "",
                metadata["name"],
                int(metadata["resourceVersion"]),
            )
            return
        context.store.put(watched.ref, body)

    return handle


def _login_handler(
    context: ProcessContext,
) -> Callable[..., Awaitable[kopf.AiohttpSession]]:
    """Make the login handler: a session with our trust store, client certificate and token.

    Each list that kopf sends through it has the kind compared with the server.
    """
    kube = context.kube
    lists = {each.ref.path(): each.ref for each in context.watched}

    async def login(**_: Any) -> kopf.AiohttpSession:
        kube.credentials.forget()

        async def authorize(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            token = await kube.credentials.token()
            if token is not None:
                request.headers["Authorization"] = f"Bearer {token}"
            response = await handler(request)
            # After the list: the comparison then lacks all that the list lacks.
            if (listed := listed_kind(lists, request.url)) is not None:
                context.relister.request(listed)
            return response

        session = aiohttp.ClientSession(
            connector=kube.connector(limit=0, ssl=kube.tls or True),
            headers={"User-Agent": USER_AGENT, **_impersonation(kube)},
            middlewares=(authorize,),
            proxy=kube.proxy,
        )
        return kopf.AiohttpSession(
            server=kube.server, aiohttp_session=session, default_namespace=kube.namespace
        )

    return login


def listed_kind(lists: Mapping[str, KindRef], url: URL) -> KindRef | None:
    """Return the kind that a request of kopf lists; None if it is not a list.

    kopf has no watch open while it lists. It reports nothing for what is no longer in the list, and
    nothing at all where the list is empty.

    Parameters
    ----------
    lists
        The watched kinds by the path of their list; what the address of the server has before it
        does not count.
    """
    if "watch" in url.query:
        return None
    return next((ref for path, ref in lists.items() if url.path.endswith(path)), None)


def _impersonation(kube: KubeConfig) -> dict[str, str]:
    """Return the headers of impersonation, one value each: the session cannot send more."""
    return {name: values[0] for name, values in kube.impersonate.items() if values}
