"""Updates of enclaves with several GPUs: what serves ends first, because both need the same GPUs.

The successor's Pod is made before that, so that it waits for the GPUs ahead of everybody else.
"""

from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.kinds.enclave import Enclave
from cloister_crds.lifecycle.admission.gpus import gpu_count
from cloister_crds.lifecycle.rollout_state import Scene, names
from cloister_crds.lifecycle.state.verdict import Verdict
from cloister_operator.rollout.admission import Admitted

__all__ = ["most_gpus", "present_release_ends_for_its_successor", "stops_first"]


def most_gpus(scene: Scene, admitted: Admitted) -> int:
    """Answer how many GPUs the wanted request has, or what runs if that has more.

    Parameters
    ----------
    scene
        What was observed.
    admitted
        What the request may run.
    """
    wanted = gpu_count(admitted.config, scene.wanted.gpus)
    return max(wanted, *(each.spec.summary.gpus for each in _running(scene)), 0)


def stops_first(scene: Scene, admitted: Admitted) -> bool:
    """Tell whether what runs has to end before the wanted request can start.

    Parameters
    ----------
    scene
        What was observed.
    admitted
        What the request may run.
    """
    return bool(_running(scene)) and most_gpus(scene, admitted) > 1


def _running(scene: Scene) -> list[Enclave]:
    """Answer what serves; else whatever still has a Pod, which may be on its way out."""
    if scene.serving is not None:
        return [scene.serving]
    return [each for each in scene.everyone if each.metadata.name in scene.observed.pods]


def present_release_ends_for_its_successor(scene: Scene) -> Verdict | None:
    """End what serves once the Pod of its successor waits for the GPUs."""
    live = scene.wanted_line.live
    if live is None or not live.spec.stop_first or scene.served_line is None:
        return None
    name = live.metadata.name
    if name not in scene.observed.pods:
        return None
    return Verdict(
        progress=ContainerPhase.DEPLOYING,
        reason="StopFirst",
        message=f"Tag {live.spec.tag} needs the GPUs of the present release, which ends first.",
        active="",
        candidate=name,
        keep=names(live),
    )
