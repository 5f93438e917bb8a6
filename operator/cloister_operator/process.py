"""The life of the process: stand for election, lead, end.

`cloister operator` calls `run`; everything below it is made and ended here.
"""

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Coroutine
from typing import Any, NoReturn

import kopf
import uvloop

from cloister_clients.kube import KubeClient, KubeConfig
from cloister_operator.context import USER_AGENT, ProcessContext
from cloister_operator.enclave.plan import FIELD_MANAGER
from cloister_operator.handlers import framework_settings, make_registry
from cloister_operator.health import HealthServer
from cloister_operator.lease import Election, ElectionThread, new_identity
from cloister_operator.metrics import Metrics
from cloister_operator.progress import Progress, Stage
from cloister_operator.settings import OperatorSettings
from cloister_operator.worker import all_keys, resync, work

__all__ = ["FAILED", "LOST", "run"]

logger = logging.getLogger(__name__)

FAILED = 1
"""Exit code after an error."""
LOST = 3
"""Exit code after the Lease was lost."""
_HEARTBEAT = 2.0
"""Seconds between two signs of life of the event loop."""


def run(settings: OperatorSettings, kube: KubeConfig) -> int:
    """Run the operator until it is told to end.

    Parameters
    ----------
    settings
        What the administrator set.
    kube
        How the API server is reached.

    Returns
    -------
    int
        Exit code: 0 after SIGTERM or SIGINT, `FAILED` after an error. A lost Lease ends the
        process at once with `LOST`, since another one may be writing already.
    """
    progress, metrics = Progress(settings.health.stale_seconds), Metrics()
    election = ElectionThread(
        lambda: _election(settings, kube),
        lost=_end_at_once,
        retry_seconds=settings.lease.retry_seconds,
    )
    health = HealthServer(
        settings.health,
        progress=progress,
        metrics=metrics,
        checks=(lambda: _election_complaint(election, settings),),
    )
    health.start()
    logger.info("health and metrics on %s:%d", settings.health.host, health.port)
    election.start()
    try:
        if not _wait_for_the_lease(election):
            return 0
        progress.stage = Stage.SYNCING
        return _lead(settings, kube, election, metrics, progress)
    finally:
        election.stop()
        health.stop()


def _lead(
    settings: OperatorSettings,
    kube: KubeConfig,
    election: ElectionThread,
    metrics: Metrics,
    progress: Progress,
) -> int:
    """Work as the leader; answer the exit code."""

    async def main() -> int:
        context = ProcessContext.from_settings(
            settings, kube, metrics=metrics, progress=progress, leads=election.leads
        )
        try:
            return await _operate(context)
        finally:
            await context.aclose()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(main())
        except KeyboardInterrupt:
            return 0
        except Exception:
            logger.exception("the operator ended")
            return FAILED


async def _operate(context: ProcessContext) -> int:
    """Watch and work until the process is told to end or a part fails."""
    registry, stop = make_registry(context), asyncio.Event()
    team = _Team(stop)

    @kopf.on.startup(registry=registry)
    async def start(**_: Any) -> None:
        team.start("heartbeat", _beat(context))
        team.start("leader", _begin(context, team))

    @kopf.on.cleanup(registry=registry)
    async def end(**_: Any) -> None:
        context.progress.stage = Stage.STOPPING
        await team.end()
        # The framework waits five seconds for the task that waits for this flag.
        stop.set()

    await kopf.operator(
        registry=registry,
        settings=framework_settings(),
        clusterwide=True,
        standalone=True,
        stop_flag=stop,
    )
    await team.end()
    return FAILED if team.failed else 0


async def _begin(context: ProcessContext, team: "_Team") -> None:
    """Wait until the cluster is known, then start to work on all of it."""
    began = time.monotonic()
    await context.relister.sync()
    for key in all_keys(context):
        context.queue.add(key)
    context.progress.stage = Stage.WORKING
    logger.info("the cluster is known after %.1f s", time.monotonic() - began)
    for number in range(context.settings.workers):
        team.start(f"worker {number}", work(context))
    team.start("relist", context.relister.run())
    team.start("resync", resync(context))


async def _beat(context: ProcessContext) -> None:
    """Give signs of life: of the event loop, and of workers that have nothing to do."""
    while True:
        context.progress.sign("event loop")
        schedule = context.queue.schedule
        if context.progress.stage is not Stage.WORKING or not (schedule.active or len(schedule)):
            context.progress.sign("workers")
        await asyncio.sleep(_HEARTBEAT)


class _Team:
    """Our own tasks beside the framework's; the failure of one ends the process."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._tasks: set[asyncio.Task[None]] = set()
        self.failed = False
        """Whether a task failed."""

    def start(self, name: str, what: Coroutine[Any, Any, None]) -> None:
        """Start a task."""
        task = asyncio.create_task(what, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def end(self) -> None:
        """End all tasks."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Look how a task ended."""
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.critical("the task %s failed", task.get_name(), exc_info=task.exception())
            self.failed = True
            self._stop.set()


def _wait_for_the_lease(election: ElectionThread) -> bool:
    """Wait in the main thread until the Lease is ours; False = told to end before."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        while not stop.is_set():
            if election.acquired.wait(0.2):
                return True
        return False
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _election(settings: OperatorSettings, kube: KubeConfig) -> Election:
    """Make the election inside of its thread's event loop."""
    client = KubeClient(kube, field_manager=FIELD_MANAGER, user_agent=f"{USER_AGENT}-lease")
    return Election(client, settings.lease, settings.operator_namespace, new_identity())


def _election_complaint(election: ElectionThread, settings: OperatorSettings) -> str:
    """Answer whether the election has been silent for too long."""
    silent = time.monotonic() - election.beat
    limit = settings.lease.duration_seconds + settings.lease.renew_seconds
    return f"election silent for {silent:.0f} s" if silent > limit else ""


def _end_at_once(why: str) -> NoReturn:
    """End the process without another write of it."""
    logger.critical("ending: %s", why)
    logging.shutdown()
    os._exit(LOST)
