"""The result of a reconcile.

When a status is written, and what an invalid object's conditions say.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from cloister_clients.clock import monotonic
from cloister_clients.kube import KindRef
from cloister_crds.kinds import KINDS, Container, Deployment, Enclave
from cloister_crds.kinds.container import ContainerStatus
from cloister_crds.kinds.enclave import EnclaveStatus
from cloister_crds.kinds.meta import Condition
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from cloister_operator.cache.projections import CONTAINER, DEPLOYMENT, repo_index
from cloister_operator.context import ProcessContext
from cloister_operator.workqueue.triggers import Key
from cloister_operator.writer import merge_patch


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a reconcile that did not fail."""

    requeue_after: timedelta | None = None
    """When to reconcile again although nothing changes; None means on changes only."""
    wrote: bool = False
    """Whether anything was written."""


DONE = Result()
"""Nothing was written, and nothing is left to do."""


def containers_of(context: ProcessContext, namespace: str, repo: str) -> Iterator[Container]:
    """Yield the Containers of a repository."""
    for entry in context.store.by_index(CONTAINER, "repo", repo_index(namespace, repo)):
        container = context.models.read(Container, entry)
        if context.decision.repositories.same(container.spec.repo, repo):
            yield container


def deployment_of(context: ProcessContext, namespace: str, repo: str) -> Deployment | None:
    """Return the Deployment of a repository, the first by name; None if there is none."""
    entries = context.store.by_index(DEPLOYMENT, "repo", repo_index(namespace, repo))
    found = (context.models.read(Deployment, entry) for entry in entries)
    own = (each for each in found if context.decision.repositories.same(each.spec.repo, repo))
    return min(own, key=lambda each: each.metadata.name, default=None)


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

    Returns
    -------
    Result
        With `requeue_after` when the write must wait.

    Raises
    ------
    KubeError
        When the write fails; the key is then retried.
    """
    patch = merge_patch(before, after)
    if not patch:
        return Result()
    wait = context.status_throttle.wait(key, monotonic())
    if wait > 0 and not is_urgent(before, after):
        return Result(timedelta(seconds=wait))
    await context.writer.patch_status(key, ref, key.namespace, key.name, {"status": patch})
    context.status_throttle.wrote(key, monotonic())
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
    """Return how long a status still waits; None if it is written now, if it differs.

    Parameters
    ----------
    progress
        Whether they differ, if at all, only by progress.
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


REASON = "InvalidObject"
_MODELS = {kind.INFO.kind: kind for kind in KINDS}
_REPLACED = ("Ready", "Reconciling", "Stalled")
_NAMED = 5
"""Problems that a message names at most."""


def invalid_conditions(
    body: Mapping[str, Any], error: ValidationError, now: datetime, *, own: bool = True
) -> list[dict[str, Any]]:
    """Return the conditions of an object that breaks the rules of its kind, or needs one that does.

    Parameters
    ----------
    body
        The object. Conditions of other types than Ready, Reconciling and Stalled are kept.
    now
        The present; a transition time only moves with its status.
    own
        Whether the object itself breaks the rules. Otherwise it may be as Ready as it was.
    """
    present = body.get("status", {}).get("conditions") or ()
    known = {each.get("type") for each in present}
    replaced = _REPLACED if own or "Ready" not in known else ("Stalled",)
    kept, before = [], []
    for condition in present:
        if condition.get("type") not in replaced:
            kept.append(condition)
            continue
        try:
            before.append(Condition.model_validate(condition))
        except ValidationError:
            # It is replaced in any case; only its time is lost.
            continue
    message = _message(error, own=own)
    updates = [
        ConditionUpdate(each, status=each == "Stalled", reason=REASON, message=message)
        for each in ("Ready", "Stalled")
        if each in replaced
    ]
    generation = body["metadata"].get("generation", 0)
    summary = merge(before, updates, generation=generation, now=now)
    return [*(each.wire() for each in summary), *kept]


def _message(error: ValidationError, *, own: bool) -> str:
    """Return a sentence that names each field and its problem."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    named = [
        f"{'.'.join(str(part) for part in each['loc']) or 'the object'}: {each['msg']}"
        for each in found[:_NAMED]
    ]
    more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    what, remedy = "the object", "change these fields"
    if not own:
        what = f"{error.title}, which the operator needs for the object or makes of it,"
        remedy = "correct what it names, or the operator's settings"
    return f"{what} breaks rules of its kind: {'; '.join(named)}{more}; {remedy}"


async def report_invalid(
    context: ProcessContext, key: Key, ref: KindRef, failure: ValidationError
) -> None:
    """Write into an object's conditions that it, or what its reconcile needs, breaks rules.

    Parameters
    ----------
    failure
        How the reconcile failed: by this object, by another one that it reads, or by one that it
        builds.

    Raises
    ------
    KubeError
        When the status cannot be written.
    """
    entry = context.store.get(ref, key.namespace, key.name)
    if entry is None:
        return
    body = entry.decode()
    try:
        _MODELS[ref.kind].read(body)
    except ValidationError as error:
        conditions = invalid_conditions(body, error, context.now())
    else:
        conditions = invalid_conditions(body, failure, context.now(), own=False)
    if conditions != body.get("status", {}).get("conditions"):
        patch = {"status": {"conditions": conditions}}
        await context.writer.patch_status(key, ref, key.namespace, key.name, patch)
