"""The reconciler of a Secret: whether it has a value, and which Containers bind it."""

from datetime import datetime

from cloister_clients.kube import NotFound
from cloister_clients.kube.kinds import SECRET
from cloister_crds.kinds import Container, Secret
from cloister_crds.lifecycle.admission.secret_bindings import bound_by
from cloister_crds.lifecycle.pause import is_paused
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from cloister_operator.cache.projections import CONTAINER, SECRET_KIND, Body
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.result import DONE, Result
from cloister_operator.reconcile.status_counts import write_status_throttled
from cloister_operator.workqueue.keys import Key

__all__ = ["reconcile_secret", "value_finding", "written_at"]

USED_BY_LIMIT = 1000
"""Names in status.usedBy at most; the schema's bound."""


async def reconcile_secret(context: ProcessContext, key: Key) -> Result:
    """Report whether a Secret has a value, and who uses it; the value is dropped after the check.

    Raises
    ------
    KubeError
        When a read or the write fails; the key is then retried.
    """
    entry = context.store.get(SECRET_KIND, key.namespace, key.name)
    if entry is None:
        return DONE
    secret = context.models.read(Secret, entry)
    if is_paused(secret):
        return DONE
    try:
        core = await context.client.get(SECRET, secret.spec.secret_ref.name, key.namespace)
    except NotFound:
        core = None
    containers = [
        context.models.read(Container, each)
        for each in context.store.entries(CONTAINER, key.namespace)
    ]
    generation = secret.metadata.generation
    status = secret.status.model_copy(
        update={
            "observed_generation": generation,
            "used_by": bound_by(secret, containers)[:USED_BY_LIMIT],
            "value_updated_at": written_at(core) if core is not None else None,
            "conditions": merge(
                secret.status.conditions,
                [value_finding(secret, core)],
                generation=generation,
                now=context.now(),
            ),
        }
    )
    return await write_status_throttled(
        context, key, SECRET_KIND, secret.status.wire(), status.wire()
    )


def value_finding(secret: Secret, core: Body | None) -> ConditionUpdate:
    """Return whether a Secret has a value, as its condition Ready."""
    reference = secret.spec.secret_ref
    if core is None:
        message = f"There is no core Secret {reference.name}; create it with key {reference.key}."
        return ConditionUpdate("Ready", status=False, reason="SecretValueMissing", message=message)
    if reference.key not in (core.get("data") or {}):
        message = f"The core Secret {reference.name} has no key {reference.key}; add it."
        return ConditionUpdate("Ready", status=False, reason="SecretValueMissing", message=message)
    return ConditionUpdate("Ready", status=True, reason="ValueFound", message="The value is there.")


def written_at(core: Body) -> datetime | None:
    """Return when a core Secret was last written, by its managed fields; None = not known."""
    metadata = core["metadata"]
    times = [each["time"] for each in metadata.get("managedFields") or () if each.get("time")]
    last = max(times, default=metadata.get("creationTimestamp"))
    return datetime.fromisoformat(last) if last else None
