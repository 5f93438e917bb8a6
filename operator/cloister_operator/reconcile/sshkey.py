"""The pass over an SSHKey: its type, whether it can be used, which Containers name it."""

from cloister_crds.kinds import Container, SSHKey
from cloister_crds.kinds.meta import PAUSED_ANNOTATION
from cloister_crds.lifecycle.sshkeys import judge_key
from cloister_operator.context import ProcessContext
from cloister_operator.keys import Key
from cloister_operator.patches import merge_patch
from cloister_operator.reconcile.result import DONE, Result
from cloister_operator.watched import CONTAINER, SSH_KEY

__all__ = ["reconcile_ssh_key"]


async def reconcile_ssh_key(context: ProcessContext, key: Key) -> Result:
    """Look at an SSHKey and say how it is.

    Parameters
    ----------
    context
        The process.
    key
        The SSHKey.

    Raises
    ------
    KubeError
        When the write fails; the pass is then repeated.
    """
    entry = context.store.get(SSH_KEY, key.namespace, key.name)
    if entry is None:
        return DONE
    found = context.models.read(SSHKey, entry)
    if found.metadata.annotations.get(PAUSED_ANNOTATION) == "true":
        return DONE
    containers = [
        context.models.read(Container, each)
        for each in context.store.entries(CONTAINER, key.namespace)
    ]
    status = judge_key(found, containers, context.now())
    patch = merge_patch(found.status.wire(), status.wire())
    if patch:
        await context.writer.patch_status(key, SSH_KEY, key.namespace, key.name, {"status": patch})
    return Result(wrote=bool(patch))
