"""The reconciler of a TLSRoute: garbage collection of orphans, whose Container is gone.

Routes of a Container that exists are created and deleted by the decision about it. Owner references
do not reach into another namespace, so Kubernetes does not collect these.
"""

import logging

from cloister_clients.kube import NotFound
from cloister_crds.names import CONTAINER_ANNOTATION
from cloister_operator.cache.projections import CONTAINER
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.result import DONE, Result
from cloister_operator.workqueue.keys import Key

__all__ = ["reconcile_route"]

logger = logging.getLogger(__name__)


async def reconcile_route(context: ProcessContext, key: Key) -> Result:
    """Delete a route when its Container is gone.

    Raises
    ------
    KubeError
        When a write or a confirming read fails; the key is then retried.
    """
    if context.gateway is None or key.namespace != context.settings.operator_namespace:
        return DONE
    entry = context.store.get(context.gateway.route, key.namespace, key.name)
    if entry is None:
        return DONE
    metadata = entry.decode()["metadata"]
    annotations = metadata.get("annotations", {})
    namespace, _, name = annotations.get(CONTAINER_ANNOTATION, "").partition("/")
    if not name:
        return DONE
    if context.store.get(CONTAINER, namespace, name) is not None:
        return DONE
    try:
        context.store.put(CONTAINER, await context.client.get(CONTAINER, name, namespace))
    except NotFound:
        logger.info("%s: its container is gone", key.text)
        await context.writer.delete(
            key,
            context.gateway.route,
            key.namespace,
            key.name,
            uid=entry.uid,
            resource_version=metadata["resourceVersion"],
        )
        return Result(wrote=True)
    return DONE
