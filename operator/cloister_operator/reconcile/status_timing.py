"""When a status is written that may be late: one that counts, and one that tells of progress alone.

Counts of other objects are written once in two seconds at most for each object. A burst of changes
makes one write, and where many objects count, each is written less often. Not throttled are the
response to a new spec, a condition that changes, and counts that leave or reach zero: whether an
Organization may be deleted depends on them.

Progress of a first deployment is written late, together with what follows, while many are deployed
at once: a write would only keep others from being ready, and the next step mostly overtakes it.
"""

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from cloister_clients.kube import KindRef
from cloister_crds.kinds import Container, Enclave
from cloister_crds.kinds.container import ContainerStatus
from cloister_crds.kinds.enclave import EnclaveStatus
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.result import Result
from cloister_operator.workqueue.keys import Key
from cloister_operator.writer.merge_patch import merge_patch

__all__ = ["BUSY_DELAY", "defer_status", "is_urgent", "write_status_throttled"]

BUSY_DELAY = timedelta(seconds=15)
"""Progress is written so late at most while more keys are due than workers can take."""

Object = dict[str, Any]


async def write_status_throttled(
    context: ProcessContext, key: Key, ref: KindRef, before: Object, after: Object
) -> Result:
    """Write the status of an object that counts others, when it differs and need not wait.

    Parameters
    ----------
    before
        The present status.
    after
        The desired status.

    Returns
    -------
    Result
        With `requeue_after` when the write has to wait.

    Raises
    ------
    KubeError
        When the write fails; the key is then retried.
    """
    patch = merge_patch(before, after)
    if not patch:
        return Result()
    wait = context.status_throttle.wait(key, time.monotonic())
    if wait > 0 and not is_urgent(before, after):
        return Result(timedelta(seconds=wait))
    await context.writer.patch_status(key, ref, key.namespace, key.name, {"status": patch})
    context.status_throttle.wrote(key, time.monotonic())
    return Result(wrote=True)


def is_urgent(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether a change of a status is more than a different number."""
    return _unthrottled(before) != _unthrottled(after) or _counts_any(before) != _counts_any(after)


def _unthrottled(status: Mapping[str, Any]) -> Object:
    """Return the part that is not throttled: what was handled, and which conditions hold."""
    conditions = status.get("conditions", ())
    seen = {name: status.get(name) for name in ("observedGeneration", "lastHandledRequest")}
    holds = {each["type"]: (each["status"], each["reason"]) for each in conditions}
    return seen | {"conditions": holds}


def _counts_any(status: Mapping[str, Any]) -> bool:
    return any((status.get("counts") or {}).values()) or bool(status.get("usedBy"))


def defer_status(
    context: ProcessContext,
    resource: Container | Enclave,
    after: ContainerStatus | EnclaveStatus,
    *,
    progress: bool,
    delay: timedelta,
) -> timedelta | None:
    """Return how long a status still waits; None = it is written now, if it differs.

    Parameters
    ----------
    context
        The process.
    resource
        The object as it is stored.
    after
        The desired status.
    progress
        Whether they differ, if at all, by progress alone.
    delay
        How long progress waits while the operator is not busy.
    """
    if progress and after != resource.status:
        busy = len(context.queue.schedule) > context.settings.workers
        longest = BUSY_DELAY if busy else delay
        left = context.memory.defer_status(resource, longest, context.queue.now())
        if left is not None:
            return left
    context.memory.forget_deferred(resource)
    return None
