"""Throttled writes of a status that counts other objects: once in two seconds at most for each.

A burst of changes makes one write, and where many objects count, each is written less often. Not
throttled are the response to a new spec, a condition that changes, and counts that leave or reach
zero: whether an Organization may be deleted depends on them.
"""

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from cloister_clients.kube import KindRef
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.result import Result
from cloister_operator.workqueue.keys import Key
from cloister_operator.writer.merge_patch import merge_patch

__all__ = ["is_urgent", "write_status_throttled"]

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
