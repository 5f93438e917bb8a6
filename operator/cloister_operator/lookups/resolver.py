"""Asks what decisions need from outside the cluster: releases, images, whether secrets are there.

Questions run outside of the queue, a bounded number at once, each at most once at a time; the
answer goes into a cache and wakes the keys that wait for it. Passes read the cache through
`answers`; they never wait.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from cachetools import LRUCache

from cloister_clients.clock import Clock, utc_now
from cloister_clients.dns import AuthoritativeDns, DnsError
from cloister_clients.kube import KubeClient, KubeError, NotFound
from cloister_clients.kube.kinds import SECRET
from cloister_clients.registry import Platform, RegistryError
from cloister_clients.sources import SourceError, SourceProvider
from cloister_crds.config import Rules, parse
from cloister_crds.kinds.container import LatestRelease
from cloister_crds.lifecycle.backoff import backoff_delay
from cloister_crds.lifecycle.state.observed import (
    Answer,
    DnsFacts,
    Failed,
    Known,
    Need,
    NeedDns,
    NeedImage,
    NeedLatest,
    NeedRelease,
    NeedSecretValues,
    NewestRelease,
    RegistryImage,
    ReleaseFacts,
    SecretRefKey,
    SecretValues,
)
from cloister_operator.enclave.pod.unenforced import unenforced
from cloister_operator.lookups.image_credentials import ImageLookup
from cloister_operator.telemetry.metrics import OperatorMetrics
from cloister_operator.workqueue.keys import Key

__all__ = ["ExternalLookup", "Lookup", "LookupResolver"]

logger = logging.getLogger(__name__)

_FRESH = timedelta(seconds=5)
"""How long an answer serves for another request that asks the same."""
_KEPT = 20_000
"""Answers in the cache at most; the ones unused for longest go first."""


class Lookup(Protocol):
    """Answers one question; never raises for what a user or a server did wrong."""

    async def __call__(self, need: Need) -> Answer:
        """Answer it."""


class ExternalLookup:
    """The real `Asker`: source provider, registries, core Secrets."""

    def __init__(
        self,
        *,
        source: SourceProvider,
        pulls: ImageLookup,
        client: KubeClient,
        dns: AuthoritativeDns,
        rules: Rules,
        clock: Clock = utc_now,
    ) -> None:
        self._source = source
        self._dns = dns
        self._pulls = pulls
        self._client = client
        self._rules = rules
        self._clock = clock

    async def __call__(self, need: Need) -> Answer:
        """Answer a question."""
        answer: Answer
        try:
            match need:
                case NeedRelease():
                    answer = Known(await self._release(need), self._clock())
                case NeedImage():
                    answer = Known(await self._image(need), self._clock())
                case NeedSecretValues():
                    answer = Known(await self._secrets(need), self._clock())
                case NeedDns():
                    answer = Known(await self._records(need), self._clock())
                case NeedLatest():
                    answer = Known(await self._newest(need), self._clock())
        except (SourceError, RegistryError, DnsError) as error:
            return self._failed(error.reason, error.message, error, transient=error.transient)
        except KubeError as error:
            message = f"the API server did not tell whether the secrets are there: {error.message}"
            return self._failed("ClusterUnavailable", message, error, transient=True)
        else:
            return answer

    async def _release(self, need: NeedRelease) -> ReleaseFacts:
        """Read a release and judge its file."""
        release = await self._source.resolve(need.repo, need.tag, commit=need.commit)
        # Judging a large file takes milliseconds that other passes need not wait for.
        rules = replace(
            self._rules,
            cpu_tiers=need.tiers.cpus,
            memory_tiers=need.tiers.memory,
            gpu_counts=need.tiers.gpus,
        )
        parsed = await asyncio.to_thread(parse, release.file, rules=rules)
        return ReleaseFacts(
            repo=release.repo,
            tag=release.tag,
            commit=release.commit,
            published=release.published,
            file_name=release.file_name,
            raw=release.file,
            digest=parsed.digest,
            config=parsed.config,
            problems=parsed.problems,
            unenforced=unenforced(parsed.config) if parsed.config else (),
        )

    async def _image(self, need: NeedImage) -> RegistryImage:
        """Read an image's description."""
        system, _, rest = need.platform.partition("/")
        architecture, _, variant = rest.partition("/")
        found = await self._pulls.resolve(need, Platform(system, architecture, variant))
        return RegistryImage(
            image=need.image,
            entrypoint=found.entrypoint,
            cmd=found.cmd,
            env=found.env,
            user=found.user,
            working_dir=found.working_dir,
            stop_signal=found.stop_signal,
        )

    async def _newest(self, need: NeedLatest) -> NewestRelease:
        """Ask for the newest release, and where it is another one for the time of the present."""
        newest = await self._source.latest(need.repo)
        if newest is None:
            return NewestRelease(newest=None)
        found = LatestRelease(tag=newest.tag, commit=newest.commit, published_at=newest.published)
        if need.than is None or need.than == newest.tag:
            return NewestRelease(newest=found)
        present = await self._source.resolve(need.repo, need.than)
        return NewestRelease(newest=found, than_published=present.published)

    async def _secrets(self, need: NeedSecretValues) -> SecretValues:
        """Look which values are there; the values are dropped at once."""
        present: dict[str, frozenset[str]] = {}
        for name in sorted({ref.secret for ref in need.refs}):
            try:
                body = await self._client.get(SECRET, name, need.namespace)
                present[name] = frozenset(body.get("data") or {})
            except NotFound:
                present[name] = frozenset()
        return SecretValues(
            missing=tuple(ref for ref in need.refs if ref.key not in present[ref.secret])
        )

    async def _records(self, need: NeedDns) -> DnsFacts:
        """Look at the records of a custom domain; both in one look."""
        texts, aliases = await asyncio.gather(
            self._dns.texts(need.txt_name), self._dns.alias(need.domain)
        )
        return DnsFacts(texts, aliases)

    def _failed(self, reason: str, message: str, error: Exception, *, transient: bool) -> Failed:
        """Say why there is no answer, and when the other side wants to be asked again."""
        now = self._clock()
        wait = getattr(error, "retry_after", None)
        retry_at = now + timedelta(seconds=wait) if transient and wait else None
        return Failed(reason, message, transient, now, retry_at)


class LookupResolver:
    """Cache and bounded, single-flight asking of questions."""

    def __init__(
        self,
        asker: Lookup,
        *,
        wake: Callable[[Key], None],
        metrics: OperatorMetrics,
        limit: int = 8,
        clock: Clock = utc_now,
    ) -> None:
        self._asker = asker
        self._wake = wake
        self._metrics = metrics
        self._clock = clock
        self._room = asyncio.Semaphore(limit)
        self._answers: LRUCache[Need, Answer] = LRUCache(_KEPT)
        self._recent: dict[Hashable, Answer] = {}
        self._failures: LRUCache[Need, int] = LRUCache(_KEPT)
        self._waiting: defaultdict[Need, set[Key]] = defaultdict(set)
        self._flights: dict[Hashable, asyncio.Task[Answer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def answers(self) -> Mapping[Need, Answer]:
        """What has been answered."""
        return self._answers

    def ask(self, need: Need, key: Key) -> None:
        """Ask a question for a key, unless it is answered or being asked.

        Parameters
        ----------
        need
            The question. A failed one is asked again when it is transient and its time has come.
        key
            Who is woken by the answer.
        """
        answer = self._answers.get(need)
        if isinstance(answer, Known):
            return
        if isinstance(answer, Failed) and not self._due(answer):
            return
        asked = need in self._waiting
        self._waiting[need].add(key)
        if not asked:
            task = asyncio.create_task(self._resolve(need), name=f"resolve {need}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def share(self, need: Need) -> bool:
        """Take over what somebody else was answered seconds ago to the same question.

        Parameters
        ----------
        need
            The question.

        Returns
        -------
        bool
            True when it was not answered before and now is, without a request and a wake.
        """
        if need in self._answers or need in self._waiting:
            return False
        recent = self._fresh(_question(need))
        if recent is not None:
            self._keep(need, recent)
        return recent is not None

    def forget(self, need: Need) -> None:
        """Drop an answer, so that the question is asked anew."""
        self._answers.pop(need, None)

    async def aclose(self) -> None:
        """Give up what is being asked."""
        for task in (*self._tasks, *self._flights.values()):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._flights.values(), return_exceptions=True)

    def _due(self, failed: Failed) -> bool:
        """Tell whether a failed question may be asked again."""
        return failed.transient and (failed.retry_at is None or failed.retry_at <= self._clock())

    async def _resolve(self, need: Need) -> None:
        """Get one answer, keep it, wake who waits."""
        answer = await self._shared(need)
        result = "known" if isinstance(answer, Known) else answer.reason
        self._metrics.looked_up(type(need).__name__, result)
        if isinstance(answer, Failed):
            answer = self._with_pause(need, answer)
            logger.info("%s: %s", answer.reason, answer.message)
        self._keep(need, answer)
        for key in self._waiting.pop(need, ()):
            self._wake(key)

    def _keep(self, need: Need, answer: Answer) -> None:
        """Keep an answer; the ones unused for longest go."""
        if isinstance(answer, Known):
            self._failures.pop(need, None)
        self._answers[need] = answer

    def _with_pause(self, need: Need, failed: Failed) -> Failed:
        """Add when to ask again: what the other side wanted, or our own back-off."""
        self._failures[need] = self._failures.get(need, 0) + 1
        if not failed.transient:
            return failed
        own = failed.at + backoff_delay(self._failures[need])
        return Failed(
            failed.reason, failed.message, True, failed.at, max(own, failed.retry_at or own)
        )

    def _fresh(self, question: Hashable) -> Answer | None:
        """Answer what was answered seconds ago; None = nothing good."""
        recent = self._recent.get(question)
        if isinstance(recent, Known) and abs(self._clock() - recent.at) < _FRESH:
            return recent
        return None

    async def _shared(self, need: Need) -> Answer:
        """Share a flight, or an answer that is seconds old, with others that ask the same."""
        question = _question(need)
        recent = self._fresh(question)
        if recent is not None:
            return recent
        flight = self._flights.get(question)
        if flight is None:
            flight = asyncio.create_task(self._fly(need), name=f"ask {question}")
            self._flights[question] = flight
            flight.add_done_callback(lambda _: self._flights.pop(question, None))
        return await asyncio.shield(flight)

    async def _fly(self, need: Need) -> Answer:
        """Ask, when there is room."""
        async with self._room:
            try:
                answer = await self._asker(need)
            except Exception as error:
                logger.exception("a question failed unexpectedly: %s", _question(need))
                message = f"an internal error ({type(error).__name__}); the operator's log has more"
                answer = Failed("InternalError", message, True, self._clock())
        self._prune()
        self._recent[_question(need)] = answer
        return answer

    def _prune(self) -> None:
        """Drop what is no longer fresh."""
        now: datetime = self._clock()
        for question in [q for q, answer in self._recent.items() if abs(now - answer.at) >= _FRESH]:
            del self._recent[question]


def _question(need: Need) -> Hashable:
    """Answer what is really asked, whoever asks."""
    match need:
        case NeedRelease():
            return ("release", need.repo, need.tag, need.commit, need.tiers)
        case NeedImage():
            return ("image", need.image, need.namespace, need.platform, need.credentials)
        case NeedSecretValues():
            refs: tuple[SecretRefKey, ...] = need.refs
            return ("secrets", need.namespace, refs)
        case NeedDns():
            # One look for each request: who corrected a record asks again within seconds.
            return ("dns", need.domain, need.request)
        case NeedLatest():
            return ("latest", need.repo, need.than, need.request)
