"""The pass over kinds that nothing acts on yet: it says so, instead of leaving them without a word.

A manifest of such a kind is taken, since other parts of an organization's configuration may come
in the same commit; its condition Stalled tells tools and people that it does nothing.
"""

from cloister_clients.kube.kinds import KindRef
from cloister_crds.kinds import RegistryCredential
from cloister_crds.kinds.meta import PAUSED_ANNOTATION
from cloister_crds.lifecycle.conditions import Finding, merge
from cloister_operator.context import ProcessContext
from cloister_operator.keys import Key
from cloister_operator.patches import merge_patch
from cloister_operator.reconcile.result import DONE, Result
from cloister_operator.watched import REGISTRY_CREDENTIAL

__all__ = ["reconcile_unbuilt"]

Unbuilt = type[RegistryCredential]

_KINDS: dict[str, tuple[KindRef, Unbuilt, str]] = {
    "RegistryCredential": (
        REGISTRY_CREDENTIAL,
        RegistryCredential,
        "Registry credentials are not used yet; name images that can be pulled without a login.",
    ),
}


async def reconcile_unbuilt(context: ProcessContext, key: Key) -> Result:
    """Say of an object that nothing acts on it yet.

    Parameters
    ----------
    context
        The process.
    key
        The object.

    Raises
    ------
    KubeError
        When the write fails; the pass is then repeated.
    """
    ref, kind, message = _KINDS[key.kind]
    entry = context.store.get(ref, key.namespace, key.name)
    if entry is None:
        return DONE
    found = context.models.read(kind, entry)
    if found.metadata.annotations.get(PAUSED_ANNOTATION) == "true":
        return DONE
    generation = found.metadata.generation
    findings = [
        Finding("Ready", status=False, reason="NotSupportedYet", message=message),
        Finding("Stalled", status=True, reason="NotSupportedYet", message=message),
    ]
    conditions = merge(found.status.conditions, findings, generation=generation, now=context.now())
    status = found.status.model_copy(
        update={"observed_generation": generation, "conditions": conditions}
    )
    patch = merge_patch(found.status.wire(), status.wire())
    if patch:
        await context.writer.patch_status(key, ref, key.namespace, key.name, {"status": patch})
    return Result(wrote=bool(patch))
