"""Rollback: bringing back what served, while another request is wanted and starting or has failed.

The wanted request has its own rules. Rollback handles the one that served before it and lost its
Pod, so that a failed or slow update never costs the release that worked.
"""

from dataclasses import replace

from cloister_operator.rollout.new_attempt import next_attempt
from cloister_operator.rollout.rollout_plan import RolloutPlan
from cloister_operator.rollout.rollout_state import RevisionAttempts, RolloutState, enclave_names
from cloister_operator.rollout.rules import is_lost

__all__ = ["roll_back"]


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
