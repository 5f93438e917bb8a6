"""What the last failed health check of a container said, from the Events of its Pod.

Read once, when an attempt fails for its health: state comes from watches, Events only add words.
"""

import re
from dataclasses import replace

from cloister_clients.kube import KindRef, KubeClient, KubeError
from cloister_crds.config import object_name
from cloister_crds.lifecycle.pod import PodFacts

__all__ = ["with_health_output"]

_EVENTS = KindRef("", "v1", "events", "Event")
_PROBE = re.compile(r"Readiness probe (?:failed|errored)[^:]*:\s*(.*)", re.DOTALL)
_FIELD = re.compile(r"spec\.containers\{(.+)\}")
_MOST = 2000
"""Characters of an output that are kept."""


async def with_health_output(client: KubeClient, namespace: str, pod: PodFacts) -> PodFacts:
    """Answer a Pod with the outputs of failed health checks, where the cluster still has them.

    Parameters
    ----------
    client
        For the one read.
    namespace
        Namespace of the Pod.
    pod
        The Pod.
    """
    selector = f"involvedObject.uid={pod.uid},reason=Unhealthy"
    try:
        page = await client.list(_EVENTS, namespace, field_selector=selector)
    except KubeError:
        # The words are a help; the judgement stands without them.
        return pod
    outputs: dict[str, str] = {}
    for event in sorted(page.items, key=lambda each: str(each.get("lastTimestamp") or "")):
        field = _FIELD.fullmatch(event.get("involvedObject", {}).get("fieldPath") or "")
        said = _PROBE.match(event.get("message") or "")
        if field and said:
            outputs[field[1]] = said[1].strip()[:_MOST]
    containers = tuple(
        replace(each, health_output=outputs.get(object_name(each.name), each.health_output))
        for each in pod.containers
    )
    return replace(pod, containers=containers)
