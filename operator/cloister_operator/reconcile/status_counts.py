"""Writes a status that counts over many objects: at most once in two seconds for each object.

A burst of changes makes one write, and where many objects count, each is written more rarely. What
a user is told of a new spec, of another state (a condition that turns), of the first or of the end
of the last that was counted does not wait: whether an Organization may be deleted hangs on it.
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
    """Write the status of an object that counts others, when it differs and its time has come.

    Parameters
    ----------
    context
        The process.
    key
        The object.
    ref
        Its kind.
    before
        Its status as it is.
    after
        Its status as it is to be.

    Returns
    -------
    Result
        With the time of another look when the write has to wait.

    Raises
    ------
    KubeError
        When the write fails; the pass is then repeated.
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
    """Tell whether a change of a status is more than another number.

    Parameters
    ----------
    before
        The status as it is.
    after
        The status as it is to be.
    """
    return _told(before) != _told(after) or _counts_any(before) != _counts_any(after)


def _told(status: Mapping[str, Any]) -> Object:
    """Answer what does not wait: what was asked for and seen, and which conditions hold."""
    conditions = status.get("conditions", ())
    seen = {name: status.get(name) for name in ("observedGeneration", "lastHandledRequest")}
    holds = {each["type"]: (each["status"], each["reason"]) for each in conditions}
    return seen | {"conditions": holds}


def _counts_any(status: Mapping[str, Any]) -> bool:
    return any((status.get("counts") or {}).values()) or bool(status.get("usedBy"))
