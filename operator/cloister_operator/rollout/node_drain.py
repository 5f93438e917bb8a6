"""Node drain: the same request starts beside what serves, on another node, then takes over.

A PodDisruptionBudget refuses the eviction meanwhile, so that nothing is lost. An enclave with more
than one GPU stays until it is evicted by force: a second one beside it would need as many again.
"""

from dataclasses import replace

from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.kinds.enclave import Enclave
from cloister_crds.lifecycle.state.reasons import is_transient
from cloister_operator.rollout.new_attempt import next_attempt
from cloister_operator.rollout.rollout_plan import RolloutPlan
from cloister_operator.rollout.rollout_state import (
    RevisionAttempts,
    RolloutState,
    enclave_names,
    has_failed,
)

__all__ = ["serving_enclave_moves_off_a_cordoned_node"]


def serving_enclave_moves_off_a_cordoned_node(state: RolloutState) -> RolloutPlan | None:
    """Start another attempt of the request that serves, on another node, and let it take over."""
    serving = state.serving
    if serving is None or state.served_attempts is not None or not _must_move(state, serving):
        return None
    attempts = state.wanted_attempts
    newest = attempts.newest
    if newest is None or newest.metadata.name == serving.metadata.name:
        if _one_before_it_drains(state, serving):
            return _plan(state, serving, None, "follows when the one before it has drained")
        return _retry(state, attempts, serving)
    if attempts.ready is not None:
        return _plan(state, serving, newest, "takes over", active=newest.metadata.name)
    if attempts.live is not None:
        return _plan(state, serving, newest, newest.status.message or "is starting")
    return _after_a_failure(state, attempts, serving, newest)


def _after_a_failure(
    state: RolloutState, attempts: RevisionAttempts, serving: Enclave, newest: Enclave
) -> RolloutPlan:
    """Retry an attempt that was lost, after a backoff; leave one that failed for good."""
    plan = _plan(state, serving, newest, f"failed: {newest.status.message}")
    if not is_transient(newest.status.reason):
        return plan
    retry_at = attempts.retry_at(state.now)
    return (
        _retry(state, attempts, serving)
        if retry_at <= state.now
        else replace(plan, retry_at=retry_at)
    )


def _one_before_it_drains(state: RolloutState, serving: Enclave) -> bool:
    """Return whether an Enclave that served before is not over.

    Its end counts from the last switch. Where each successor is on a cordoned node again, since the
    Host tolerates that or nodes are cordoned one after the other, none of them would ever end.
    """
    return any(
        each.status.promoted_at is not None and not has_failed(each)
        for each in state.enclaves
        if each.metadata.name != serving.metadata.name
    )


def _must_move(state: RolloutState, serving: Enclave) -> bool:
    return serving.metadata.name in state.observed.cordoned and serving.spec.summary.gpus <= 1


def _retry(state: RolloutState, attempts: RevisionAttempts, serving: Enclave) -> RolloutPlan:
    created = next_attempt(state, attempts)
    plan = _plan(state, serving, attempts.newest, f"attempt {created.spec.attempt} follows")
    plan = replace(plan, candidate=created.name)
    return plan.keeping(frozenset({created.name})).with_actions(created)


def _plan(
    state: RolloutState, serving: Enclave, newest: Enclave | None, step: str, *, active: str = ""
) -> RolloutPlan:
    name = serving.metadata.name
    candidate = newest.metadata.name if newest is not None else ""
    return RolloutPlan(
        progress=ContainerPhase.READY,
        reason="Serving" if state.is_routed else "Routing",
        message=f"Tag {serving.spec.tag} serves and leaves node {serving.status.node}, which takes "
        f"no new Pods; its successor {step}",
        settled=state.is_routed and not active,
        active=active or name,
        candidate="" if candidate in {name, active} else candidate,
        keep=enclave_names(newest) if active else enclave_names(serving, newest),
        route="" if state.is_routed else name,
    )
