"""The Recreate strategy, for enclaves with several GPUs: what serves is deleted first.

Both need the same GPUs. The new Pod is created before that, so that it is first in line for them.
"""

from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.kinds.enclave import Enclave
from cloister_crds.lifecycle.admission.gpus import gpu_count
from cloister_operator.rollout.admission import AdmissionGranted
from cloister_operator.rollout.rollout_plan import RolloutPlan
from cloister_operator.rollout.rollout_state import RolloutState, enclave_names

__all__ = ["most_gpus", "needs_recreate", "recreate_deletes_the_present_release"]


def most_gpus(state: RolloutState, admitted: AdmissionGranted) -> int:
    """Return how many GPUs the wanted request has, or what runs, if that has more."""
    wanted = gpu_count(admitted.config, state.wanted.gpus)
    return max(wanted, *(each.spec.summary.gpus for each in _running(state)), 0)


def needs_recreate(state: RolloutState, admitted: AdmissionGranted) -> bool:
    """Return whether what runs must be deleted before the wanted request can start."""
    return bool(_running(state)) and most_gpus(state, admitted) > 1


def _running(state: RolloutState) -> list[Enclave]:
    """Return what serves; else whatever still has a Pod, which may be terminating."""
    if state.serving is not None:
        return [state.serving]
    return [each for each in state.all_enclaves if each.metadata.name in state.observed.pods]


def recreate_deletes_the_present_release(state: RolloutState) -> RolloutPlan | None:
    """Delete what serves once the Pod of the new attempt waits for the GPUs."""
    live = state.wanted_attempts.live
    if live is None or not live.spec.stop_first or state.served_attempts is None:
        return None
    name = live.metadata.name
    if name not in state.observed.pods:
        return None
    return RolloutPlan(
        progress=ContainerPhase.DEPLOYING,
        reason="StopFirst",
        message=f"Tag {live.spec.tag} needs the GPUs of the present release, which is deleted "
        "first.",
        active="",
        candidate=name,
        keep=enclave_names(live),
    )
