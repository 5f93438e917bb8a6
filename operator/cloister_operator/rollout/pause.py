"""What goes on while a Container is paused: what others wait for.

A pause holds every start, update and stop. It does not hold the withdrawal of host names that the
Container may no longer have, since their new owner waits for them; the end of an Enclave that was
replaced; and the move off a node that is drained, since the disruption budget refuses to evict.
"""

from dataclasses import replace

from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.lifecycle import request as requests
from cloister_operator.rollout.decision import (
    Action,
    DeleteEnclave,
    DeleteRoute,
    RecordDemoted,
    RecordServing,
    ReleaseHostname,
    RouteTo,
)
from cloister_operator.rollout.node_drain import serving_enclave_moves_off_a_cordoned_node
from cloister_operator.rollout.rollout_plan import RolloutPlan
from cloister_operator.rollout.rollout_state import RolloutState, enclave_names, is_draining

__all__ = ["allowed_while_paused", "paused_container_is_left_alone"]

_ALLOWED = (DeleteEnclave, DeleteRoute, RecordDemoted, RecordServing, ReleaseHostname, RouteTo)
"""Actions that no pause holds, as long as nothing has to move."""


def paused_container_is_left_alone(state: RolloutState) -> RolloutPlan:
    """Keep every Enclave but those that were replaced; move what serves off a cordoned node.

    For a paused Container `RolloutState.wanted` is what serves, whatever spec requests.
    """
    stays = [each for each in state.enclaves if not is_draining(each)]
    move = serving_enclave_moves_off_a_cordoned_node(state)
    if move is not None:
        others = (e for e in stays if not requests.is_made_for(e.spec, state.wanted))
        return _with_preview(state, move.keeping(enclave_names(*others)))
    serving = state.serving
    plan = RolloutPlan(
        progress=state.status.phase or ContainerPhase.PENDING,
        reason="Paused",
        candidate=state.status.candidate,
        keep=enclave_names(*stays),
        route=serving.metadata.name if serving is not None and not state.is_routed else "",
    )
    return _with_preview(state, plan)


def allowed_while_paused(
    state: RolloutState, plan: RolloutPlan, actions: tuple[Action, ...]
) -> tuple[Action, ...]:
    """Return which actions of a paused Container's complete plan are done: all that a move needs.

    Parameters
    ----------
    state
        The state that was decided about.
    plan
        The plan, as `paused_container_is_left_alone` made it.
    actions
        The actions after cleanup.
    """
    if plan.reason != "Paused" and state.serving is not None:
        return actions
    return tuple(each for each in actions if isinstance(each, _ALLOWED))


def _with_preview(state: RolloutState, plan: RolloutPlan) -> RolloutPlan:
    preview = state.observed.preview
    return replace(plan, preview=preview.selects) if preview is not None else plan
