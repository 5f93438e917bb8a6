"""The reconciler of a Secret: whether it has a value, and which Containers bind it."""

from base64 import b64decode
from dataclasses import replace
from datetime import datetime, timedelta

from cloister_clients.kube import NotFound
from cloister_clients.kube.kinds import SECRET
from cloister_crds.kinds import Container, Organization, Secret
from cloister_crds.lifecycle.admission.secret_bindings import bound_by, excluded_by
from cloister_crds.lifecycle.admission.secret_values import value_error
from cloister_crds.lifecycle.pause import is_paused
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from cloister_operator.cache.projections import CONTAINER, SECRET_KIND, Body
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.gather import organization_of
from cloister_operator.reconcile.result import DONE, Result
from cloister_operator.reconcile.status_timing import write_status_throttled
from cloister_operator.workqueue.keys import Key

__all__ = [
    "NO_ORGANIZATION",
    "core_secret",
    "looked_at_again",
    "reconcile_secret",
    "value_finding",
    "written_at",
]

NO_ORGANIZATION = ConditionUpdate(
    "Ready",
    status=False,
    reason="OrganizationNotFound",
    message="No Organization owns this namespace; create it in the namespace of one.",
)
"""The finding about an object whose value the operator may not read."""
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
    organization = organization_of(context, key.namespace)
    core = await core_secret(context, organization, key.namespace, secret.spec.secret_ref.name)
    containers = [
        context.models.read(Container, each)
        for each in context.store.entries(CONTAINER, key.namespace)
    ]
    users = bound_by(secret, containers, context.decision.repositories)
    generation = secret.metadata.generation
    finding = value_finding(secret, organization, core)
    others = (
        context.models.read(Secret, each)
        for each in context.store.entries(SECRET_KIND, key.namespace)
    )
    older = excluded_by(secret, others, context.decision.repositories)
    if older is not None:
        finding = name_taken(secret, older)
    status = secret.status.model_copy(
        update={
            "observed_generation": generation,
            "used_by": tuple(each.metadata.name for each in users[:USED_BY_LIMIT]),
            "value_updated_at": written_at(core) if core is not None else None,
            "conditions": merge(
                secret.status.conditions,
                [finding],
                generation=generation,
                now=context.now(),
            ),
        }
    )
    result = await write_status_throttled(
        context, key, SECRET_KIND, secret.status.wire(), status.wire()
    )
    return looked_at_again(result, finding, context.decision.taken_recheck)


def looked_at_again(result: Result, finding: ConditionUpdate, recheck: timedelta) -> Result:
    """Return the result of a reconcile with the time of the next one: core Secrets are not watched.

    Parameters
    ----------
    result
        What the write of the status says.
    finding
        The finding about the value.
    recheck
        Time between two looks at a value that cannot be used.
    """
    if finding.status:
        return result
    return replace(result, requeue_after=min(result.requeue_after or recheck, recheck))


async def core_secret(
    context: ProcessContext, organization: Organization | None, namespace: str, name: str
) -> Body | None:
    """Read a core Secret; None = it does not exist, or may not be read.

    Outside of the namespaces of organizations the operator reads no Secrets (docs/accounts.md).
    """
    if organization is None:
        return None
    try:
        return await context.client.get(SECRET, name, namespace)
    except NotFound:
        return None


def value_finding(
    secret: Secret, organization: Organization | None, core: Body | None
) -> ConditionUpdate:
    """Return whether a Secret has a value that can be used, as its condition Ready."""
    if organization is None:
        return NO_ORGANIZATION
    reference = secret.spec.secret_ref
    if core is None:
        message = f"There is no core Secret {reference.name}; create it with key {reference.key}."
        return ConditionUpdate("Ready", status=False, reason="SecretValueMissing", message=message)
    if reference.key not in (core.get("data") or {}):
        message = f"The core Secret {reference.name} has no key {reference.key}; add it."
        return ConditionUpdate("Ready", status=False, reason="SecretValueMissing", message=message)
    error = value_error(secret.spec.name, b64decode(core["data"][reference.key]))
    if error is not None:
        message = f"Key {reference.key} of the core Secret {reference.name} {error}."
        return ConditionUpdate("Ready", status=False, reason="SecretValueUnusable", message=message)
    return ConditionUpdate("Ready", status=True, reason="ValueFound", message="The value is there.")


def name_taken(secret: Secret, older: Secret) -> ConditionUpdate:
    """Return that an older Secret excludes one, as its condition Ready."""
    owner = older.spec.repo or "the organization"
    return ConditionUpdate(
        "Ready",
        status=False,
        reason="SecretNameTaken",
        message=f"The older csec {older.metadata.name} is a secret of {owner} with the name "
        f"{secret.spec.name}, so this one is not used. Delete one of the two, or create this one "
        "with another spec.name.",
    )


def written_at(core: Body) -> datetime | None:
    """Return when a core Secret was last written, by its managed fields; None = not known."""
    metadata = core["metadata"]
    times = [each["time"] for each in metadata.get("managedFields") or () if each.get("time")]
    last = max(times, default=metadata.get("creationTimestamp"))
    return datetime.fromisoformat(last) if last else None
