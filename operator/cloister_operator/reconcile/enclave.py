"""The reconciler of an Enclave: its Pod is created once, watched, and deleted at the end."""

import logging
from datetime import timedelta

from cloister_clients.kube.kinds import POD, SERVICE
from cloister_crds.kinds import Enclave
from cloister_crds.lifecycle.pause import is_paused
from cloister_crds.names import ENCLAVE_LABEL, service_name
from cloister_operator.cache.projections import ENCLAVE
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.children import (
    ChildrenMissing,
    EnclaveRefused,
    ensure_pod,
    load_children,
)
from cloister_operator.reconcile.gather import pod_facts, with_newest_status
from cloister_operator.reconcile.metering import record_demoted, remove_finalizer
from cloister_operator.reconcile.orphans import (
    delete_children_of_orphaning,
    delete_orphan,
    delete_ownerless_pod,
)
from cloister_operator.reconcile.results import DONE, Result, defer_status
from cloister_operator.rollout.enclave_status import (
    PodAction,
    is_under_way,
    pod_action,
    reevaluate_after,
)
from cloister_operator.workqueue.triggers import Key
from cloister_operator.writer import merge_patch

logger = logging.getLogger(__name__)

STATUS_DELAY = timedelta(seconds=1)
"""Progress of an attempt is written so late at most while the operator is not busy."""


async def reconcile_enclave(context: ProcessContext, key: Key) -> Result:
    """Create or delete the Pod of an Enclave, and report its status.

    Raises
    ------
    KubeError
        When a write or a confirming read fails; the key is then retried.
    """
    entry = context.store.get(ENCLAVE, key.namespace, key.name)
    if entry is None:
        return Result(wrote=await delete_ownerless_pod(context, key))
    enclave = context.models.read(Enclave, entry)
    if await delete_orphan(context, key, enclave):
        return Result(wrote=True)
    if is_paused(enclave) and enclave.metadata.deletion_timestamp is None:
        return DONE
    await _confirm_pod(context, key, enclave)
    now = context.now()
    newest, pod = with_newest_status(context, enclave, now)
    wrote = False
    try:
        if pod_action(newest, pod) is PodAction.CREATE and await _create_pod(context, key, newest):
            # The status is written once, with the Pod that is there now.
            newest, pod = with_newest_status(context, enclave, now)
            wrote = True
    finally:
        # Reported even when the Pod could not be created: the status names what is missing.
        progress = is_under_way(enclave.status, newest.status)
        deferred = defer_status(
            context, enclave, newest.status, progress=progress, delay=STATUS_DELAY
        )
        if deferred is None:
            wrote = await _report(context, key, enclave, newest) or wrote
    if pod is not None and pod_action(newest, pod) is PodAction.DELETE:
        await context.writer.delete(key, POD, key.namespace, key.name, uid=pod.uid)
        wrote = True
    if enclave.metadata.deletion_timestamp is not None:
        await delete_children_of_orphaning(context, key, enclave)
        wrote = await delete_ownerless_pod(context, key) or wrote
        wrote = await _demote(context, key, enclave) or wrote
    metered = await remove_finalizer(context, key, enclave)
    waits = (reevaluate_after(newest, pod, now, context.decision), metered.requeue_after, deferred)
    requeue_after = min((each for each in waits if each is not None), default=None)
    return Result(requeue_after, wrote=wrote or metered.wrote)


async def _confirm_pod(context: ProcessContext, key: Key, enclave: Enclave) -> None:
    """Read the Pod live when it existed and the cache lacks it, before it counts as lost."""
    known = enclave.status.pod_uid and enclave.metadata.deletion_timestamp is None
    if known and context.store.get(POD, key.namespace, key.name) is None:
        await context.writer.refresh(POD, key.namespace, key.name)


async def _report(context: ProcessContext, key: Key, enclave: Enclave, newest: Enclave) -> bool:
    """Write the status when it differs: only the changed fields, since others write here too."""
    if newest.status == enclave.status:
        return False
    patch = merge_patch(enclave.status.wire(), newest.status.wire())
    if not patch:
        return False
    if newest.status.phase != enclave.status.phase:
        logger.info("%s: %s %s", key.text, newest.status.phase, newest.status.reason)
    await context.writer.patch_status(key, ENCLAVE, key.namespace, key.name, {"status": patch})
    return True


async def _create_pod(context: ProcessContext, key: Key, enclave: Enclave) -> bool:
    """Create the Pod, or trigger the Container when something is missing to build it from."""
    state = context.memory.attempt(enclave)
    try:
        await ensure_pod(context, key, await load_children(context, key, enclave))
    except EnclaveRefused as refused:
        logger.warning("%s: %s", key.text, refused)
        state.refused = str(refused)
        context.queue.add(key)
        return False
    except ChildrenMissing as missing:
        logger.info("%s: %s", key.text, missing)
        if state.children_complete is not False:
            state.children_complete = False
            context.queue.add(Key("Container", key.namespace, enclave.spec.container.name))
        return False
    state.children_complete = True
    # Kept again when the ConfigMap was replaced; nobody needs it once the Pod is there.
    context.memory.take_built(enclave)
    return True


async def _demote(context: ProcessContext, key: Key, enclave: Enclave) -> bool:
    """Record when an Enclave that is being deleted ceased to serve.

    That is once its Pod is gone or is on a lost node, or the Service no longer selects it.
    """
    status = enclave.status
    if status.promoted_at is None or status.demoted_at is not None:
        return False
    if _is_reached(context, key, enclave):
        return False
    await record_demoted(context, key, enclave, context.now())
    return True


def _is_reached(context: ProcessContext, key: Key, enclave: Enclave) -> bool:
    """Return whether requests still reach the Pod of an Enclave that is being deleted."""
    pod = context.store.get(POD, key.namespace, key.name)
    facts = pod_facts(context, enclave)
    if pod is None or (facts is not None and facts.node_gone):
        return False
    name = service_name(enclave.spec.container.name)
    service = context.store.get(SERVICE, key.namespace, name)
    if service is None:
        return False
    return bool(service.decode()["spec"]["selector"].get(ENCLAVE_LABEL) == key.name)
