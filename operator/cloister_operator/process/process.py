"""The life of the process: stand for election, lead, end.

`cloister operator` calls `run`; everything below it is made and ended here.
"""

import asyncio
import gc
import logging
import os
import threading
import time
from collections.abc import Coroutine
from typing import Any, NoReturn

import kopf
import uvloop

from cloister_clients.kube import KubeClient, KubeConfig
from cloister_operator.context import USER_AGENT, ProcessContext
from cloister_operator.enclave.plan import FIELD_MANAGER
from cloister_operator.lookups.gateway_api_versions import (
    GatewayKinds,
    GatewayKindsMissing,
    find_gateway_kinds,
)
from cloister_operator.process.dispatcher import all_keys, resync, work
from cloister_operator.process.kopf_handlers import kopf_settings, make_registry
from cloister_operator.process.leader_election import Election, ElectionThread, new_identity
from cloister_operator.reconcile.orphaned_secrets import collect_garbage
from cloister_operator.settings import OperatorSettings
from cloister_operator.telemetry.health import HealthServer
from cloister_operator.telemetry.liveness import Liveness, Stage
from cloister_operator.telemetry.metrics import OperatorMetrics

__all__ = ["FAILED", "LOST", "run"]

logger = logging.getLogger(__name__)

FAILED = 1
"""Exit code after an error."""
LOST = 3
"""Exit code after the Lease was lost."""
_HEARTBEAT = 2.0
"""Seconds between two signs of life of the event loop."""
_UNTIL_WE_LEAD = 0.2
"""Seconds between two looks whether the Lease is ours."""
_COLLECT_AFTER = (50_000, 20, 20)
"""Thresholds of Python's garbage collector (`gc.set_threshold`).

The copy of a large cluster is millions of objects that are no garbage: with the usual thresholds
most of the time of reading it goes into looking through what was read before.
"""


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
    gc.set_threshold(*_COLLECT_AFTER)
    liveness, metrics = Liveness(settings.health.stale_seconds), OperatorMetrics()
    election = ElectionThread(
        lambda: _election(settings, kube),
        lost=_end_at_once,
        retry_seconds=settings.lease.retry_seconds,
    )
    health = HealthServer(
        settings.health,
        liveness=liveness,
        metrics=metrics,
        checks=(lambda: _election_complaint(election, settings),),
    )
    health.start()
    logger.info("health and metrics on %s:%d", settings.health.host, health.port)
    election.start()
    try:
        return _work(settings, kube, election, metrics, liveness)
    finally:
        election.stop()
        health.stop()


def _work(
    settings: OperatorSettings,
    kube: KubeConfig,
    election: ElectionThread,
    metrics: OperatorMetrics,
    liveness: Liveness,
) -> int:
    """Watch the cluster, and work once the Lease is ours; answer the exit code."""

    async def main() -> int:
        try:
            gateway = await _gateway(settings, kube)
        except GatewayKindsMissing as missing:
            logger.critical("%s", missing)
            return FAILED
        context = ProcessContext.from_settings(
            settings,
            kube,
            metrics=metrics,
            liveness=liveness,
            leads=election.leads,
            gateway=gateway,
        )
        try:
            return await _operate(context, election.acquired)
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


async def _gateway(settings: OperatorSettings, kube: KubeConfig) -> GatewayKinds | None:
    """Find the kinds that lead requests to containers, where a Gateway is named."""
    if settings.gateway is None:
        return None
    async with KubeClient(kube, field_manager=FIELD_MANAGER, user_agent=USER_AGENT) as client:
        return await find_gateway_kinds(client)


async def _operate(context: ProcessContext, acquired: threading.Event) -> int:
    """Watch and work until the process is told to end or a part fails."""
    registry, stop = make_registry(context), asyncio.Event()
    team = _Team(stop)

    @kopf.on.startup(registry=registry)
    async def start(**_: Any) -> None:
        team.start("heartbeat", _beat(context))
        team.start("leader", _begin(context, team, acquired))

    @kopf.on.cleanup(registry=registry)
    async def end(**_: Any) -> None:
        context.liveness.stage = Stage.STOPPING
        await team.end()
        # The framework waits five seconds for the task that waits for this flag.
        stop.set()

    await kopf.operator(
        registry=registry,
        settings=kopf_settings(context.watched),
        clusterwide=True,
        standalone=True,
        stop_flag=stop,
    )
    await team.end()
    return FAILED if team.failed else 0


async def _begin(context: ProcessContext, team: "_Team", acquired: threading.Event) -> None:
    """Wait until we lead and the cluster is known, then start to work on all of it.

    The watches run before: who comes after a leader that died knows most of the cluster already.
    """
    while not acquired.is_set():  # noqa: ASYNC110 - another thread sets it
        await asyncio.sleep(_UNTIL_WE_LEAD)
    began = time.monotonic()
    context.liveness.stage = Stage.SYNCING
    await context.relister.sync()
    for key in all_keys(context):
        context.queue.add(key, low_priority=True)
    # What has been read stays, or goes by its reference counts: it is not looked through again.
    gc.freeze()
    context.liveness.stage = Stage.WORKING
    logger.info("the cluster is known after %.1f s", time.monotonic() - began)
    for number in range(context.settings.workers):
        team.start(f"worker {number}", work(context))
    team.start("relist", context.relister.run())
    team.start("resync", resync(context))
    team.start("values", collect_garbage(context))


async def _beat(context: ProcessContext) -> None:
    """Give signs of life: of the event loop, and of workers that have nothing to do."""
    while True:
        context.liveness.heartbeat("event loop")
        schedule = context.queue.schedule
        if context.liveness.stage is not Stage.WORKING or not (schedule.active or len(schedule)):
            context.liveness.heartbeat("workers")
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
