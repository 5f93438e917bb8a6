"""The rules of a replacement (`spec.replaces`), on both sides.

The new Container gets the host names when it is ready; the old one deletes its Enclaves after the
new one has taken over.
"""

from datetime import datetime

from cloister_crds.kinds.container import Container, ContainerPhase
from cloister_crds.lifecycle.names.hostnames import is_held_by
from cloister_crds.lifecycle.replacement import has_taken_over
from cloister_crds.lifecycle.state.conditions import condition
from cloister_operator.rollout.auto_update import RolloutPlan
from cloister_operator.rollout.decision import ClaimHostname, TransferHostname
from cloister_operator.rollout.rollout_state import RolloutState, enclave_names


def replaced_container_deletes_its_enclaves(state: RolloutState) -> RolloutPlan | None:
    """Delete the Enclaves once another Container has taken over; a user must delete this one.

    It stays replaced while the successor exists, also when that one is stopped.
    """
    new = state.observed.successor
    if new is None:
        return None
    ready = condition(state.status.conditions, "Ready")
    # Remembered in status, since a successor that is stopped no longer looks promoted.
    was_replaced = ready is not None and ready.reason == "Replaced"
    if not (was_replaced or has_taken_over(new)):
        return None
    text = f"Container {new.metadata.name} has taken over from this one"
    until = _drained_at(state, new)
    # Clients may still resolve to it: it serves until all know the new one.
    if state.serving is not None and state.now < until:
        return RolloutPlan(
            progress=ContainerPhase.STOPPING,
            reason="Replaced",
            message=f"{text}, which drains.",
            keep=enclave_names(state.serving),
            retry_at=until,
        )
    if state.enclaves or enclave_names(*state.all_enclaves) & state.observed.pods:
        return RolloutPlan(
            progress=ContainerPhase.STOPPING,
            reason="Replaced",
            message=f"{text}; its enclaves are being deleted.",
            active="",
        )
    return RolloutPlan(
        progress=ContainerPhase.STOPPED,
        reason="Replaced",
        message=f"{text}; delete this one.",
        stalled=True,
        active="",
        frees_hostnames=True,
    )


def _drained_at(state: RolloutState, new: Container) -> datetime:
    """Return when all clients know that requests go to the successor."""
    available = condition(new.status.conditions, "Available")
    return available.last_transition_time + state.settings.drain if available else state.now


def hostnames_transfer_to_the_ready_replacement(state: RolloutState) -> RolloutPlan | None:
    """Transfer the host names of the Container that is replaced before the ready one serves."""
    ready = state.wanted_attempts.ready
    if ready is None or state.container.spec.replaces is None or state.serving is not None:
        return None
    claims = state.observed.claims
    missing = [
        each
        for each in state.hostnames
        if each not in claims or not is_held_by(claims[each], state.container)
    ]
    if not missing or not state.routes_to(ready):
        return None
    keep = enclave_names(ready, state.active, state.last_failure)
    taken = [each for each in missing if each in claims and not state.inherits_hostname(each)]
    if taken:
        return RolloutPlan(
            progress=ContainerPhase.FAILED,
            reason="HostnameTaken",
            message=f"The host name {taken[0]} is held by another container; delete that one: "
            "this one then continues automatically.",
            stalled=True,
            keep=keep,
            retry_at=state.now + state.settings.taken_recheck,
        )
    return RolloutPlan(
        progress=ContainerPhase.STARTED,
        reason="Routing",
        message=f"Tag {ready.spec.tag} is ready; it receives the host names of "
        f"{state.container.spec.replaces}.",
        candidate=ready.metadata.name,
        keep=keep,
        actions=tuple(
            TransferHostname(
                hostname=each,
                resource_version=claims[each].metadata.resource_version,
            )
            if each in claims and claims[each].metadata.uid
            else ClaimHostname(each)
            for each in missing
        ),
    )
