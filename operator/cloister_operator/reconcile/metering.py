"""Metering in reconciles: when an Enclave ceased to serve, its finalizer, and grace periods."""

import logging
from datetime import datetime, timedelta
from typing import Any

from cloister_clients.clock import utc_text
from cloister_clients.kube import Forbidden, KubeError, NotFound
from cloister_clients.kube.kinds import EVENT, LEASE, NODE
from cloister_crds.kinds import Enclave
from cloister_crds.lifecycle.metering import (
    FINALIZER,
    FinalizerDecision,
    decide_finalizer,
    served_until,
)
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, condition, merge
from cloister_operator.cache.projections import ENCLAVE
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.results import Result
from cloister_operator.workqueue.triggers import Key
from cloister_operator.writer import FIELD_MANAGER


def wait_for_age(created: datetime | None, seconds: float, now: datetime) -> timedelta | None:
    """Return the time until an object has reached an age.

    Parameters
    ----------
    created
        When it was created, in UTC; None if not known, and taken as just now.
    seconds
        Age to reach.
    now
        The present, in UTC.

    Returns
    -------
    timedelta | None
        None when it is old enough.
    """
    left = timedelta(seconds=seconds) - (now - (created or now))
    return left if left > timedelta(0) else None


logger = logging.getLogger(__name__)

NODE_LEASES = "kube-node-lease"
"""Namespace in which each node renews a Lease of its name (Kubernetes, "Leases")."""
CONDITION = "Metered"


async def record_demoted(
    context: ProcessContext, key: Key, enclave: Enclave, noticed: datetime
) -> None:
    """Record when an Enclave that served ceased to; one that is gone needs no record.

    Parameters
    ----------
    noticed
        When that was noticed, in UTC.

    Raises
    ------
    KubeError
        When the server refuses or cannot be reached.
    """
    lost = enclave.status.node and _is_on_lost_node(context, enclave)
    heartbeat = await _last_heartbeat(context, enclave.status.node) if lost else None
    relieved = _relieved(context, enclave)
    at = served_until(enclave, noticed, heartbeat=heartbeat, relieved=relieved)
    at = at.replace(microsecond=0)
    patch = {"status": {"serving": False, "demotedAt": utc_text(at)}}
    namespace, name = enclave.metadata.namespace or "", enclave.metadata.name
    try:
        await context.writer.patch_status(key, ENCLAVE, namespace, name, patch)
    except NotFound:
        logger.info("Enclave %s/%s is gone; demotedAt is not written", namespace, name)


def _is_on_lost_node(context: ProcessContext, enclave: Enclave) -> bool:
    """Return whether the node of an Enclave is gone or not ready."""
    node = context.store.get(NODE, "", enclave.status.node)
    if enclave.status.reason == "NodeLost" or node is None:
        return True
    conditions = node.decode()["status"]["conditions"]
    return all(each["status"] != "True" for each in conditions if each["type"] == "Ready")


def _relieved(context: ProcessContext, enclave: Enclave) -> datetime | None:
    """Return when the next Enclave of the same Container was promoted; None if none was."""
    began, container = enclave.status.promoted_at, enclave.spec.container
    index = f"{enclave.metadata.namespace}/{container.name}"
    others = (
        context.models.read(Enclave, entry)
        for entry in context.store.by_index(ENCLAVE, "container", index)
        if entry.uid != enclave.metadata.uid
    )
    promoted = (
        each.status.promoted_at for each in others if each.spec.container.uid == container.uid
    )
    return min((at for at in promoted if at and began and at >= began), default=None)


async def _last_heartbeat(context: ProcessContext, node: str) -> datetime | None:
    """Return when a node last renewed its Lease; None if the Lease is gone as well."""
    try:
        lease = await context.client.get(LEASE, node, NODE_LEASES)
    except NotFound:
        return None
    except Forbidden as error:
        logger.warning("run time on node %s is counted until its loss was noticed: %s", node, error)
        return None
    renewed = lease.get("spec", {}).get("renewTime")
    return datetime.fromisoformat(renewed) if renewed else None


async def remove_finalizer(context: ProcessContext, key: Key, enclave: Enclave) -> Result:
    """Remove the finalizer of an Enclave when it need not wait, else report what it waits for.

    Raises
    ------
    KubeError
        When the server refuses or cannot be reached.
    """
    settings = context.settings
    wait = timedelta(seconds=settings.metering_wait_seconds)
    decided = decide_finalizer(enclave, context.now(), metering=settings.metering, wait=wait)
    wrote = False
    if decided.remove:
        await _remove(context, key, enclave, decided)
        wrote = True
    elif decided.report:
        wrote = await _report_wait(context, key, enclave, decided)
    return Result(decided.requeue_after, wrote=wrote)


async def _remove(
    context: ProcessContext, key: Key, enclave: Enclave, decided: FinalizerDecision
) -> None:
    """Remove the finalizer; when run time was lost by that, post a Warning."""
    if decided.report:
        message = (
            f"The API has not metered the run time of Enclave {key.name} in time, and it goes "
            "without: its last minutes or more are missing in the ledger. See why the API does "
            "not run with `metering: true`, or does not reach its ledger."
        )
        logger.warning("%s: %s", key.text, message)
        await _warn(context, enclave, message)
    others = [each for each in enclave.metadata.finalizers if each != FINALIZER]
    patch = {
        "metadata": {"resourceVersion": enclave.metadata.resource_version, "finalizers": others}
    }
    await context.writer.patch(key, ENCLAVE, key.namespace, key.name, patch)


async def _report_wait(
    context: ProcessContext, key: Key, enclave: Enclave, decided: FinalizerDecision
) -> bool:
    """Report in a condition what an Enclave waits for."""
    conditions = enclave.status.conditions
    if condition(conditions, CONDITION) is not None or decided.gives_up_at is None:
        return False
    message = (
        "The Enclave is over and waits for the API to meter its run time: see that the API runs "
        "with `metering: true` and reaches its ledger. At "
        f"{utc_text(decided.gives_up_at)} it goes without."
    )
    finding = ConditionUpdate(CONDITION, status=False, reason="AwaitingMetering", message=message)
    generation, now = enclave.metadata.generation, context.now()
    updated = (*conditions, *merge((), [finding], generation=generation, now=now))
    patch = {"status": {"conditions": [each.wire() for each in updated]}}
    logger.warning("%s: %s", key.text, message)
    await context.writer.patch_status(key, ENCLAVE, key.namespace, key.name, patch)
    return True


async def _warn(context: ProcessContext, enclave: Enclave, message: str) -> None:
    """Post a Warning event about an Enclave; a failure to do so is only logged."""
    meta, now = enclave.metadata, context.clock()
    body: dict[str, Any] = {
        "metadata": {"generateName": "cloister-", "namespace": meta.namespace},
        "eventTime": utc_text(now, "microseconds"),
        "type": "Warning",
        "reason": "RunTimeLost",
        "action": "Metering",
        "note": message,
        "reportingController": f"cloister.dev/{FIELD_MANAGER}",
        "reportingInstance": FIELD_MANAGER,
        "regarding": {
            "apiVersion": Enclave.INFO.api_version,
            "kind": "Enclave",
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
        },
    }
    try:
        await context.client.create(EVENT, body)
    except KubeError as error:
        logger.warning("no event about %s/%s: %s", meta.namespace, meta.name, error)
