"""The decision about one Container: from the observed state to actions and status. Pure.

The operator calls `decide` in every reconcile; nothing is kept between two calls. Guarantees: the
same observation and time give the same decision; when nothing has changed the status is equal and
there are no actions; ``activeEnclave`` only ever moves to an Enclave that is ready; Ready is true
only when the Service routes to what spec requests.
"""

from datetime import datetime, timedelta

from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.lifecycle.state.observed import Observed
from cloister_operator.rollout.admission import admit
from cloister_operator.rollout.cleanup import clean_up
from cloister_operator.rollout.decision import Decision
from cloister_operator.rollout.pause import (
    allowed_while_paused,
    paused_container_is_left_alone,
)
from cloister_operator.rollout.replacement import replaced_container_deletes_its_enclaves
from cloister_operator.rollout.rollback import roll_back
from cloister_operator.rollout.rollout_plan import RolloutPlan, earliest
from cloister_operator.rollout.rollout_state import RolloutState, enclave_names
from cloister_operator.rollout.rules import (
    ADMISSION_RULES,
    RULES,
    deleted_container_deletes_its_enclaves,
)
from cloister_operator.rollout.status import next_status, paused_status

__all__ = ["decide"]

SHORTEST_REQUEUE = timedelta(seconds=1)
"""Shortest time until the next reconcile."""
_UNDERWAY = {ContainerPhase.PENDING, ContainerPhase.DEPLOYING, ContainerPhase.STARTED}
"""Progress of a request that neither serves nor has failed."""


def decide(observed: Observed, now: datetime) -> Decision:
    """Decide about a Container.

    Parameters
    ----------
    observed
        Everything that is known.
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
