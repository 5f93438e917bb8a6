"""The decision about one Container: from the observed state to actions and status. Pure.

Also what continues while it is paused, and the rollback to what served before.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.lifecycle import request as requests
from cloister_crds.lifecycle.state.observed import Observed
from cloister_operator.rollout.admission import admit
from cloister_operator.rollout.auto_update import RolloutPlan, earliest
from cloister_operator.rollout.cleanup import clean_up
from cloister_operator.rollout.decision import (
    Action,
    Decision,
    DeleteEnclave,
    DeleteRoute,
    RecordDemoted,
    RecordServing,
    ReleaseHostname,
    RouteTo,
    ServiceRole,
)
from cloister_operator.rollout.new_attempt import (
    next_attempt,
    serving_enclave_moves_off_a_cordoned_node,
)
from cloister_operator.rollout.replacement import replaced_container_deletes_its_enclaves
from cloister_operator.rollout.rollout_state import (
    RevisionAttempts,
    RolloutState,
    enclave_names,
    is_draining,
)
from cloister_operator.rollout.rules import (
    ADMISSION_RULES,
    RULES,
    deleted_container_deletes_its_enclaves,
    is_lost,
)
from cloister_operator.rollout.status import next_status, paused_status

_ALLOWED = (DeleteEnclave, DeleteRoute, RecordDemoted, RecordServing, ReleaseHostname, RouteTo)
"""Actions that no pause holds, as long as nothing must move."""


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
    plan
        The plan, as `paused_container_is_left_alone` made it.
    actions
        The actions after cleanup.
    """
    if plan.reason != "Paused" and state.serving is not None:
        return actions
    return tuple(
        each
        for each in actions
        if isinstance(each, _ALLOWED)
        and (not isinstance(each, RouteTo) or each.role is ServiceRole.SERVING)
    )


def _with_preview(state: RolloutState, plan: RolloutPlan) -> RolloutPlan:
    preview = state.observed.preview
    return replace(plan, preview=preview.selects) if preview is not None else plan


def roll_back(state: RolloutState, plan: RolloutPlan) -> RolloutPlan:
    """Add to a plan what the request needs that serves or served, where it is not the wanted one.

    A plan that already names the serving Enclave, or none, is left as it is.
    """
    attempts = state.served_attempts
    if plan.active is not None or attempts is None:
        return plan
    if state.serving is not None:
        plan = plan.keeping(enclave_names(state.serving))
        return plan if state.is_routed else plan.routing_to(state.serving.metadata.name)
    ready = attempts.ready
    if ready is not None and state.routes_to(ready):
        return replace(plan, active=ready.metadata.name).keeping(enclave_names(ready))
    plan = plan.keeping(enclave_names(state.active, attempts.newest))
    if ready is not None:
        return plan.routing_to(ready.metadata.name)
    return _retry(state, attempts, plan) if is_lost(state, attempts) else plan


def _retry(state: RolloutState, attempts: RevisionAttempts, plan: RolloutPlan) -> RolloutPlan:
    retry_at = attempts.retry_at(state.now)
    if retry_at > state.now:
        return plan.retrying_at(retry_at)
    created = next_attempt(state, attempts)
    return plan.keeping(frozenset({created.name})).with_actions(created)


SHORTEST_REQUEUE = timedelta(seconds=1)
"""Shortest time until the next reconcile."""
_UNDERWAY = {ContainerPhase.PENDING, ContainerPhase.DEPLOYING, ContainerPhase.STARTED}
"""Progress of a request that neither serves nor has failed."""


def decide(observed: Observed, now: datetime) -> Decision:
    """Decide about a Container.

    Parameters
    ----------
    now
        The present, in UTC.

    Returns
    -------
    Decision
        The next status, and what to do, what to look up and when to reconcile again.
    """
    state = RolloutState(observed, now)
    if state.is_deleting:
        # Not left to the garbage collector: a finalizer or an orphaning deletion would keep them.
        plan = deleted_container_deletes_its_enclaves(state)
        return Decision(
            rule=deleted_container_deletes_its_enclaves.__name__,
            status=next_status(state, plan),
            actions=clean_up(state, plan).actions,
        )
    # Pause never holds the end of what was replaced, which is the first rule.
    if state.is_paused and replaced_container_deletes_its_enclaves(state) is None:
        return _decide_paused(state)
    rule, plan = _first_match(state)
    plan = _keep_last_failure(state, roll_back(state, plan))
    final = clean_up(state, plan)
    return Decision(
        rule=rule,
        status=next_status(state, plan),
        actions=final.actions,
        needs=(*final.needs, *state.followed_release.needs),
        requeue_after=_requeue_after(now, final.retry_at, state.followed_release.recheck_at),
    )


def _decide_paused(state: RolloutState) -> Decision:
    plan = paused_container_is_left_alone(state)
    final = clean_up(state, plan)
    return Decision(
        rule=paused_container_is_left_alone.__name__,
        status=paused_status(state, plan),
        actions=allowed_while_paused(state, plan, final.actions),
        requeue_after=_requeue_after(state.now, final.retry_at),
    )


def _first_match(state: RolloutState) -> tuple[str, RolloutPlan]:
    for rule in RULES:
        plan = rule(state)
        if plan is not None:
            return rule.__name__, plan
    admission = admit(state)
    for admission_rule in ADMISSION_RULES:
        plan = admission_rule(state, admission)
        if plan is not None:
            return admission_rule.__name__, plan
    raise AssertionError("the last rule matches every admission")


def _keep_last_failure(state: RolloutState, plan: RolloutPlan) -> RolloutPlan:
    """Keep what failed before until its update is ready: a cancel goes back to it."""
    if plan.progress in _UNDERWAY and state.serving_after(plan) is None:
        return plan.keeping(enclave_names(state.last_failure))
    return plan


def _requeue_after(now: datetime, *times: datetime | None) -> timedelta | None:
    at = earliest(*times)
    return max(at - now, SHORTEST_REQUEUE) if at is not None else None
