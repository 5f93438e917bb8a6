"""The reconciler of an SSHKey: its type, whether it is usable, which Containers name it."""

from cloister_crds.kinds import Container, SSHKey
from cloister_crds.lifecycle.admission.ssh_keys import ssh_key_status
from cloister_crds.lifecycle.pause import is_paused
from cloister_operator.cache.projections import CONTAINER, SSH_KEY
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.result import DONE, Result
from cloister_operator.reconcile.status_timing import write_status_throttled
from cloister_operator.workqueue.keys import Key

__all__ = ["reconcile_ssh_key"]


async def reconcile_ssh_key(context: ProcessContext, key: Key) -> Result:
    """Check an SSHKey and report its status.

    Raises
    ------
    KubeError
        When the write fails; the key is then retried.
    """
    entry = context.store.get(SSH_KEY, key.namespace, key.name)
    if entry is None:
        return DONE
    found = context.models.read(SSHKey, entry)
    if is_paused(found):
        return DONE
    containers = [
        context.models.read(Container, each)
        for each in context.store.entries(CONTAINER, key.namespace)
    ]
    status = ssh_key_status(found, containers, context.now())
    return await write_status_throttled(context, key, SSH_KEY, found.status.wire(), status.wire())
