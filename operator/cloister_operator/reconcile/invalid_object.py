"""An object that breaks the rules of its kind says so in its conditions.

The API server refuses such an object, but keeps one that it stored before a rule came with an
upgrade, or while another CRD was installed.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from cloister_clients.kube import KindRef
from cloister_crds.kinds import KINDS
from cloister_crds.kinds.meta import Condition
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from cloister_operator.context import ProcessContext
from cloister_operator.workqueue.keys import Key

__all__ = ["invalid_conditions", "report_invalid"]

REASON = "InvalidObject"
_MODELS = {kind.INFO.kind: kind for kind in KINDS}
_REPLACED = ("Ready", "Reconciling", "Stalled")
_NAMED = 5
"""Problems that a message names at most."""


def invalid_conditions(
    body: Mapping[str, Any], error: ValidationError, now: datetime
) -> list[dict[str, Any]]:
    """Return the conditions of an object that breaks the rules of its kind.

    Parameters
    ----------
    body
        The object. Conditions of other types than Ready, Reconciling and Stalled are kept.
    error
        What reading it raised.
    now
        The present; a transition time only moves with its status.
    """
    kept, before = [], []
    for condition in body.get("status", {}).get("conditions") or ():
        if condition.get("type") not in _REPLACED:
            kept.append(condition)
            continue
        try:
            before.append(Condition.model_validate(condition))
        except ValidationError:
            # It is replaced in any case; only its time is lost.
            continue
    message = _message(error)
    updates = [
        ConditionUpdate(each, status=each == "Stalled", reason=REASON, message=message)
        for each in ("Ready", "Stalled")
    ]
    generation = body["metadata"].get("generation", 0)
    summary = merge(before, updates, generation=generation, now=now)
    return [*(each.wire() for each in summary), *kept]


def _message(error: ValidationError) -> str:
    """Return a sentence that names each field and its problem."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    named = [
        f"{'.'.join(str(part) for part in each['loc']) or 'the object'}: {each['msg']}"
        for each in found[:_NAMED]
    ]
    more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"the object breaks rules of its kind: {'; '.join(named)}{more}; change these fields"


async def report_invalid(context: ProcessContext, key: Key, ref: KindRef) -> None:
    """Write into an object's conditions that it breaks its kind's rules, if it does.

    A reconcile also fails when another object that it reads is such a one: that one's own
    reconcile reports it.

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
        return
    if conditions != body.get("status", {}).get("conditions"):
        patch = {"status": {"conditions": conditions}}
        await context.writer.patch_status(key, ref, key.namespace, key.name, patch)
