"""Live updates: the streams of pages, and the end of sessions."""

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from secrets import token_hex
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError

from cloister_api.cache import CachedContainer, CachedEnclave, ClusterCache
from cloister_api.errors import unavailable
from cloister_api.ledger.availability import is_away
from cloister_clients.kube import Reflector
from cloister_crds.kinds import Organization
from cloister_crds.kinds.meta import Resource

T = TypeVar("T")

CONTAINERS = "containers"
ORGANIZATION = "organization"
"""Changed also by the role of somebody."""
ALL_PARTS = frozenset(
    {
        CONTAINERS,
        ORGANIZATION,
        "deployments",
        "secrets",
        "ssh-keys",
        "domains",
        "registries",
        "hosts",
    }
)
"""Parts that a stream may wait for, other than single containers."""
REMEMBERED = 4096
"""Latest changes of all organizations that are remembered, for streams that begin after them."""
MAX_COUNT = 20
"""Most digits of how many changes there were."""
FULL = unavailable("there are as many live pages as may be; close some", retry_after=30)


def container_part(uid: str) -> str:
    """Return the part that one Container is, its Enclaves included."""
    return f"container:{uid}"


@dataclass(eq=False, slots=True)
class Follower:
    """The wait of one stream."""

    parts: frozenset[str]
    """Parts that it waits for."""
    changed: set[str] = field(default_factory=set)
    """Parts that have changed since they were last taken."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is something to do."""
    ended: bool = False
    """Whether the session is over."""

    def mark(self, parts: frozenset[str]) -> None:
        """Note that parts have changed, if it waits for one of them."""
        found = parts & self.parts
        if found:
            self.changed |= found
            self.woken.set()

    def take(self) -> frozenset[str]:
        """Return what has changed, and wait for more."""
        taken = frozenset(self.changed)
        self.changed.clear()
        self.woken.clear()
        return taken


class Feed:
    """Passes changes on to the streams of one process.

    Parameters
    ----------
    per_session, per_user, per_process
        Most streams of one session, of all sessions of one user, and of all together.
    """

    def __init__(
        self, cache: ClusterCache, *, per_session: int, per_user: int, per_process: int
    ) -> None:
        self._cache = cache
        self._per_session = per_session
        self._per_user = per_user
        self._per_process = per_process
        self._by_namespace: dict[str, set[Follower]] = {}
        self._by_session: dict[str, set[Follower]] = {}
        self._by_user: Counter[str] = Counter()
        self._ended = False
        self._begun = token_hex(4)
        self._count = 0
        self._latest: deque[tuple[str | None, frozenset[str] | None]] = deque(maxlen=REMEMBERED)
        cache.containers.listen(self._container)
        cache.enclaves.listen(self._enclave)
        cache.organizations.listen(self._organization)
        cache.hosts.listen(lambda _: self._everywhere(frozenset({"hosts"})))
        self._listen(cache.deployments, "deployments", lambda held: held.value)
        self._listen(cache.secrets, "secrets", lambda held: held)
        self._listen(cache.ssh_keys, "ssh-keys", lambda held: held)
        self._listen(cache.domains, "domains", lambda held: held)
        self._listen(cache.registry_credentials, "registries", lambda held: held)

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return sum(map(len, self._by_session.values()))

    @property
    def sessions(self) -> frozenset[str]:
        """Sessions that have streams."""
        return frozenset(self._by_session)

    @property
    def ended(self) -> bool:
        """Whether every stream must end."""
        return self._ended

    @property
    def moment(self) -> str:
        """How far the feed is: a page that is made now misses nothing that was told before."""
        return f"{self._begun}.{self._count}"

    def end(self) -> None:
        """Let every stream end, because the process shuts down."""
        self._ended = True
        for each in self._all():
            each.woken.set()

    def end_sessions(self, sessions: Iterable[str]) -> None:
        """Let the streams of sessions end."""
        for session in sessions:
            for each in self._by_session.get(session, ()):
                each.ended = True
                each.woken.set()

    @contextlib.contextmanager
    def follow(
        self, namespace: str, session_id: str, user: str, parts: frozenset[str], since: str = ""
    ) -> Iterator[Follower]:
        """Let a stream wait for parts of an organization; its own members are always one.

        Parameters
        ----------
        since
            `moment` at which the page was made, from which on it misses changes; empty means now.

        Raises
        ------
        ApiError
            503 when the session, the user, or all of them have as many streams as they may.
        """
        if (
            len(self._by_session.get(session_id, ())) >= self._per_session
            or self._by_user[user] >= self._per_user
            or self.streams >= self._per_process
        ):
            raise FULL
        follower = Follower(parts | {ORGANIZATION})
        self._by_session.setdefault(session_id, set()).add(follower)
        self._by_user[user] += 1
        self._by_namespace.setdefault(namespace, set()).add(follower)
        # After registration, so that no change is lost between page and stream.
        if since:
            follower.mark(self._missed(since, namespace, follower.parts))
        try:
            yield follower
        finally:
            self._leave(namespace, session_id, follower)
            self._by_user -= Counter([user])

    def _missed(self, since: str, namespace: str, parts: frozenset[str]) -> frozenset[str]:
        """Return which parts may have changed since a moment; of another process all may have."""
        begun, _, count = since.partition(".")
        readable = count.isascii() and count.isdecimal() and len(count) <= MAX_COUNT
        if begun != self._begun or not readable:
            return parts
        missed = self._count - int(count)
        if not 0 <= missed <= len(self._latest):
            return parts
        changes = islice(self._latest, len(self._latest) - missed, None)
        told = [
            parts if what is None else what for where, what in changes if where in (None, namespace)
        ]
        return frozenset[str]().union(*told)

    def _leave(self, namespace: str, session_id: str, follower: Follower) -> None:
        following = self._by_namespace[namespace]
        following.discard(follower)
        if not following:
            del self._by_namespace[namespace]
        self._by_session[session_id].discard(follower)
        if not self._by_session[session_id]:
            del self._by_session[session_id]

    def _listen(
        self, reflector: Reflector[T], part: str, resource: Callable[[T], Resource]
    ) -> None:
        """Listen to a kind whose objects are a part of their organization."""
        parts = frozenset({part})

        def changed(value: T | None) -> None:
            if value is None:
                self._everywhere(parts)
            else:
                self._mark(resource(value).metadata.namespace or "", parts)

        reflector.listen(changed)

    def _container(self, held: CachedContainer | None) -> None:
        if held is None:
            self._everywhere(None)
            return
        meta = held.container.metadata
        self._mark(meta.namespace or "", frozenset({CONTAINERS, container_part(meta.uid)}))

    def _enclave(self, held: CachedEnclave | None) -> None:
        if held is None:
            self._everywhere(None)
        else:
            self._mark(held.namespace, frozenset({container_part(held.container_uid)}))

    def _organization(self, held: Organization | None) -> None:
        if held is None:
            self._everywhere(frozenset({ORGANIZATION}))
        else:
            self._mark(held.spec.namespace, frozenset({ORGANIZATION}))

    def _mark(self, namespace: str, parts: frozenset[str]) -> None:
        self._note(namespace, parts)
        for each in self._by_namespace.get(namespace, ()):
            each.mark(parts)

    def _everywhere(self, parts: frozenset[str] | None) -> None:
        """Mark parts of every organization; None means all that pages wait for."""
        self._note(None, parts)
        for each in self._all():
            each.mark(each.parts if parts is None else parts)

    def _note(self, namespace: str | None, parts: frozenset[str] | None) -> None:
        self._count += 1
        self._latest.append((namespace, parts))

    def _all(self) -> list[Follower]:
        return [each for following in self._by_namespace.values() for each in following]


logger = logging.getLogger(__name__)

EVERY = 0.5
"""Seconds between two queries; there is none while there are no streams."""


class SessionWatch:
    """The watch of a feed's sessions.

    Parameters
    ----------
    over
        Returns which sessions, by identifier, do not last any more.
    every
        Seconds between two queries.
    """

    def __init__(
        self,
        feed: Feed,
        over: Callable[[Collection[str]], Awaitable[Collection[str]]],
        *,
        every: float = EVERY,
    ) -> None:
        self._feed = feed
        self._over = over
        self._every = every
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, in the running event loop."""
        self._task = asyncio.create_task(self.run())
        self._task.add_done_callback(_report)

    def end(self) -> None:
        """End the feed, and so the watch, because the process shuts down."""
        self._feed.end()

    async def run(self) -> None:
        """Watch until the feed ends; whatever ends the watch ends the feed."""
        try:
            while not self._feed.ended:
                await asyncio.sleep(self._every)
                await self._look()
        finally:
            self._feed.end()

    async def _look(self) -> None:
        sessions = self._feed.sessions
        if not sessions:
            return
        try:
            over = await self._over(sessions)
        except (SQLAlchemyError, OSError) as error:
            if not is_away(error):
                logger.warning("it is not known which sessions last: %s", error)
            return
        self._feed.end_sessions(over)


def _report(task: asyncio.Task[None]) -> None:
    """Log why a watch has failed: pages are not kept current until the process starts again."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("live pages have ended: the watch failed", exc_info=task.exception())
