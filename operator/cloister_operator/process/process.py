"""The life of the process: stand for election, publish the settings, lead, exit."""

import asyncio
import gc
import itertools
import logging
import os
from collections.abc import Coroutine
from typing import Any, NoReturn

import kopf
import uvloop
from prometheus_client import disable_created_metrics

from cloister_clients.clock import monotonic
from cloister_clients.kube import KubeClient, KubeConfig, KubeError
from cloister_clients.kube.kinds import (
    CONFIG_MAP,
    POLICY,
    POLICY_BINDING,
    RESOURCE_QUOTA,
    lapsed_policies,
)
from cloister_crds.backoff import Backoff
from cloister_operator.cache.projections import ORGANIZATION
from cloister_operator.context import USER_AGENT, ProcessContext
from cloister_operator.enclave.tenant import is_counted
from cloister_operator.lookups.cluster import (
    OUTDATED_REMEDY,
    GatewayKinds,
    GatewayKindsMissing,
    find_gateway_kinds,
)
from cloister_operator.process.dispatcher import all_keys, resync, run_worker
from cloister_operator.process.kopf_handlers import kopf_settings, make_registry
from cloister_operator.process.leader_election import Election, ElectionThread, Flag, new_identity
from cloister_operator.reconcile.orphans import collect_garbage
from cloister_operator.settings import OperatorSettings
from cloister_operator.telemetry.health import HealthServer, Liveness, Stage
from cloister_operator.telemetry.metrics import OperatorMetrics
from cloister_operator.workqueue.triggers import Key
from cloister_operator.writer import FIELD_MANAGER

logger = logging.getLogger(__name__)

KINDS_QUOTA = "cloister-kinds"
"""Name of the quota in the operator's namespace; it is part of the roles' manifest."""
_POLL, _POLLS = 10.0, 60
"""Seconds between two looks, and how many there are of these."""
_RARE_POLL = 300.0
"""Seconds between two looks later: an action is required first."""


async def look_for_counts(context: ProcessContext) -> bool:
    """Remember and return whether our kinds are counted.

    Called before the first reconcile, so that a restart does not take the counts out of the quotas.
    """
    namespace = context.settings.operator_namespace
    try:
        quota = await context.client.get(RESOURCE_QUOTA, KINDS_QUOTA, namespace)
    except KubeError as error:
        logger.warning(
            "the quota %s cannot be read, and default limits do not apply to kubectl: %s; apply "
            "crds/manifests/roles or upgrade the chart",
            KINDS_QUOTA,
            error,
        )
        return False
    context.memory.kinds_counted = is_counted(quota)
    return context.memory.kinds_counted


async def await_counted_kinds(context: ProcessContext) -> None:
    """Wait for the counts, then have the quotas of all namespaces applied again."""
    delays = itertools.chain(itertools.repeat(_POLL, _POLLS), itertools.repeat(_RARE_POLL))
    for delay in delays:
        await asyncio.sleep(delay)
        if await look_for_counts(context):
            break
    logger.info("the cluster counts the kinds that quotas name")
    for entry in context.store.entries(ORGANIZATION):
        context.queue.add(Key("Organization", entry.namespace, entry.name), low_priority=True)


async def watch_policies(context: ProcessContext) -> None:
    """Check the policies now and as often as the cache is compared with the server."""
    reported: dict[str, str] = {}
    while True:
        try:
            lapsed = await _lapsed(context.client)
        except KubeError as error:
            logger.warning("cannot check the admission policies: %s", error)
        else:
            context.metrics.policies_lapsed(len(lapsed))
            if lapsed != reported:
                _report(lapsed)
                reported = lapsed
        await asyncio.sleep(context.settings.relist_seconds)


async def _lapsed(client: KubeClient) -> dict[str, str]:
    """Return the policies that are not in force, and why."""
    policies = await client.list(POLICY)
    bindings = await client.list(POLICY_BINDING)
    return lapsed_policies(policies.items, bindings.items)


def _report(lapsed: dict[str, str]) -> None:
    """Log which policies are not in force."""
    if not lapsed:
        logger.info("all admission policies are in force")
        return
    reasons = ", ".join(f"{name} ({why})" for name, why in lapsed.items())
    logger.error(
        "admission policies are not in force: %s; apply crds/manifests/policies, or anyone who can "
        "write in a namespace of an organization can enter enclaves",
        reasons,
    )


_BACKOFF = Backoff(first=1.0, longest=60.0, jitter=(0.5, 1.0))
"""Delays between failed attempts."""


async def publish_settings(context: ProcessContext) -> None:
    """Publish the settings of this operator, which leads, and restore them at each resync."""
    settings, failures = context.settings, 0
    manifest = settings.installation().manifest(settings.operator_namespace)
    while True:
        try:
            await context.client.apply(CONFIG_MAP, manifest)
            failures = 0
        except KubeError as error:
            failures += 1
            logger.warning("the settings for the API were not published: %s", error)
        await asyncio.sleep(_BACKOFF.jittered(failures) if failures else settings.resync_seconds)


FAILED = 1
"""Exit code after an error."""
LOST = 3
"""Exit code after the Lease was lost."""
_HEARTBEAT = 2.0
"""Seconds between two heartbeats of the event loop."""
_LEADER_POLL = 0.2
"""Seconds between two checks whether the Lease is ours."""
_GC_THRESHOLDS = (50_000, 20, 20)
"""Thresholds of Python's garbage collector (`gc.set_threshold`).

The cache of a large cluster is millions of objects that are not garbage: with the usual thresholds
most of the time of filling it goes into traversing what is there already.
"""


def run(settings: OperatorSettings, kube: KubeConfig) -> int:
    """Run the operator until it is stopped.

    Parameters
    ----------
    kube
        How the API server is reached.

    Returns
    -------
    int
        Exit code: 0 after SIGTERM or SIGINT, `FAILED` after an error. A lost Lease terminates the
        process immediately with `LOST`, since another one may be writing already.
    """
    gc.set_threshold(*_GC_THRESHOLDS)
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
    liveness, metrics = Liveness(settings.health.stale_seconds), OperatorMetrics()
    election = ElectionThread(
        lambda: _make_election(settings, kube),
        lost=_exit_at_once,
    )
    metrics.observe_election(settings.lease.name, election.leads)
    health = HealthServer(
        settings.health,
        liveness=liveness,
        metrics=metrics,
        checks=(lambda: _election_unhealthy_reason(election, settings),),
    )
    # Health is served before the election: a standby is live and can be scraped.
    health.start()
    logger.info("health and metrics on %s:%d", settings.health.host, health.port)
    election.start()
    try:
        return _run_event_loop(settings, kube, election, metrics, liveness)
    finally:
        election.stop()
        health.stop()


def _run_event_loop(
    settings: OperatorSettings,
    kube: KubeConfig,
    election: ElectionThread,
    metrics: OperatorMetrics,
    liveness: Liveness,
) -> int:
    """Watch the cluster, and work once the Lease is ours; return the exit code."""

    async def main() -> int:
        try:
            # Kinds that a Gateway needs are looked up once: their version decides what is watched.
            gateway = await _find_gateway(settings, kube)
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
        return await operate(context, election.acquired)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(main())
        except KeyboardInterrupt:
            return 0
        except Exception:
            logger.exception("the operator cannot start")
            return FAILED


async def _find_gateway(settings: OperatorSettings, kube: KubeConfig) -> GatewayKinds | None:
    """Find the kinds that route requests to containers, where a Gateway is named."""
    if settings.gateway is None:
        return None
    async with KubeClient(kube, field_manager=FIELD_MANAGER, user_agent=USER_AGENT) as client:
        kinds = await find_gateway_kinds(client)
    if kinds.outdated:
        logger.warning("gateway: %s; %s", kinds.outdated, OUTDATED_REMEDY)
    return kinds


async def operate(context: ProcessContext, acquired: Flag) -> int:
    """Watch and work until the process is stopped or a part fails; return the exit code."""
    try:
        return await _operate(context, acquired)
    except Exception:
        logger.exception("the operator failed")
        return FAILED
    finally:
        await context.aclose()


async def _operate(context: ProcessContext, acquired: Flag) -> int:
    registry, stop = make_registry(context), asyncio.Event()
    tasks = _BackgroundTasks(stop)

    @kopf.on.startup(registry=registry)
    async def start(**_: Any) -> None:
        tasks.start("heartbeat", _send_heartbeats(context))
        tasks.start("leader", _lead(context, tasks, acquired))

    @kopf.on.cleanup(registry=registry)
    async def end(**_: Any) -> None:
        context.liveness.stage = Stage.STOPPING
        await tasks.cancel()
        # kopf waits five seconds for lookups under way and for the task that waits for this flag.
        await context.resolver.aclose()
        stop.set()

    await kopf.operator(
        registry=registry,
        settings=kopf_settings(context.watched),
        clusterwide=True,
        standalone=True,
        stop_flag=stop,
    )
    await tasks.cancel()
    return FAILED if tasks.failed else 0


async def _lead(context: ProcessContext, tasks: "_BackgroundTasks", acquired: Flag) -> None:
    """Wait until we lead and the informer cache has synced, then start to reconcile.

    The watches run before: a successor of a leader that died has most of the cluster in its cache.
    """
    while not acquired.is_set():  # noqa: ASYNC110 - another thread sets it
        await asyncio.sleep(_LEADER_POLL)
    began = monotonic()
    context.liveness.stage = Stage.SYNCING
    await context.relister.sync()
    for key in all_keys(context):
        context.queue.add(key, low_priority=True)
    # What has been read stays, or goes by its reference counts: it need not be traversed again.
    gc.freeze()
    context.liveness.stage = Stage.WORKING
    logger.info("the cache has synced after %.1f s", monotonic() - began)
    if not await look_for_counts(context):
        tasks.start("counted kinds", await_counted_kinds(context))
    for number in range(context.settings.workers):
        tasks.start(f"worker {number}", run_worker(context))
    tasks.start("settings", publish_settings(context))
    tasks.start("relist", context.relister.run())
    tasks.start("resync", resync(context))
    tasks.start("orphaned secrets", collect_garbage(context))
    tasks.start("policies", watch_policies(context))


async def _send_heartbeats(context: ProcessContext) -> None:
    """Record heartbeats of the event loop, of idle workers, and how old the work is."""
    while True:
        context.liveness.heartbeat("event loop")
        schedule = context.queue.schedule
        if context.liveness.stage is not Stage.WORKING or not (schedule.active or len(schedule)):
            context.liveness.heartbeat("workers")
        context.metrics.oldest_due(schedule.oldest_due(context.queue.now()))
        await asyncio.sleep(_HEARTBEAT)


class _BackgroundTasks:
    """Our own tasks, in addition to kopf's; when one fails, the process stops."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._tasks: set[asyncio.Task[None]] = set()
        self.failed = False
        """Whether a task failed."""

    def start(self, name: str, what: Coroutine[Any, Any, None]) -> None:
        """Start a task."""
        task = asyncio.create_task(what, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    async def cancel(self) -> None:
        """Cancel all tasks and wait for them."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _finished(self, task: asyncio.Task[None]) -> None:
        """Stop the process when a task failed."""
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.critical("the task %s failed", task.get_name(), exc_info=task.exception())
            self.failed = True
            self._stop.set()


def _make_election(settings: OperatorSettings, kube: KubeConfig) -> Election:
    """Make the election; called inside its thread's event loop."""
    client = KubeClient(kube, field_manager=FIELD_MANAGER, user_agent=f"{USER_AGENT}-lease")
    return Election(client, settings.lease, settings.operator_namespace, new_identity())


def _election_unhealthy_reason(election: ElectionThread, settings: OperatorSettings) -> str:
    """Return that the election has been silent for too long; empty when it has not."""
    silent = monotonic() - election.heartbeat_at
    limit = settings.lease.duration_seconds + settings.lease.renew_seconds
    return f"election silent for {silent:.0f} s" if silent > limit else ""


def _exit_at_once(why: str) -> NoReturn:
    """Terminate the process without another write, not even those of cleanup handlers."""
    logger.critical("exiting: %s", why)
    logging.shutdown()
    os._exit(LOST)
