"""The rules of a rollout, in order: the first that matches makes the plan.

Each is a small function with a sentence for a name; it returns a `RolloutPlan`, or None when it
does not apply. Read `RULES` from top to bottom: first what deletes everything, then what exists,
from the best (the wanted request serves) to the worst (it failed), then what is needed to create
it.

An update is blue-green: the new Enclave starts next to the one that serves
(`starting_candidate_is_awaited`), is promoted when it is ready (`ready_candidate_is_promoted`), and
the old one is deleted after it has drained (`cleanup`). The exception is `recreate_strategy`.
"""

from collections.abc import Callable

from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.kinds.enclave import Enclave, EnclavePhase
from cloister_crds.kinds.meta import ConditionStatus
from cloister_crds.lifecycle.admission.host_selection import find_host
from cloister_crds.lifecycle.names.hostnames import is_held_by
from cloister_crds.lifecycle.state.conditions import condition, holds
from cloister_crds.lifecycle.state.observed import Need
from cloister_crds.lifecycle.state.reasons import REASONS, is_transient, reason_for
from cloister_operator.rollout.admission import (
    Admission,
    AdmissionDelayed,
    AdmissionGranted,
    AdmissionRefused,
    AdmissionUnresolved,
)
from cloister_operator.rollout.auto_update import RolloutPlan
from cloister_operator.rollout.decision import ClaimHostname, may_move
from cloister_operator.rollout.new_attempt import (
    first_attempt,
    most_gpus,
    needs_recreate,
    next_attempt,
    recreate_deletes_the_present_release,
    serving_enclave_moves_off_a_cordoned_node,
)
from cloister_operator.rollout.replacement import (
    hostnames_transfer_to_the_ready_replacement,
    replaced_container_deletes_its_enclaves,
)
from cloister_operator.rollout.rollout_state import RevisionAttempts, RolloutState, enclave_names

Rule = Callable[[RolloutState], RolloutPlan | None]
"""A rule about the Enclaves that exist."""
AdmissionRule = Callable[[RolloutState, Admission], RolloutPlan | None]
"""A rule about a request that has no Enclave yet."""


def is_lost(state: RolloutState, attempts: RevisionAttempts) -> bool:
    """Return whether the newest attempt of a request was lost and must be retried.

    A request that never served is given up after some losses in a row.
    """
    if attempts.newest is None:
        return attempts.origin is not None
    if attempts.failed is None or not is_transient(attempts.failed.status.reason):
        return False
    return attempts.ever_served or attempts.losses(state.now) <= state.settings.attempts


def deleted_container_deletes_its_enclaves(state: RolloutState) -> RolloutPlan:
    """Delete everything when the Container is being deleted; nothing else is decided about it."""
    if state.enclaves or enclave_names(*state.all_enclaves) & state.observed.pods:
        message = "The container is being deleted; its enclaves are deleted first."
    else:
        holders = ", ".join(state.container.metadata.finalizers)
        message = f"The container is being deleted; its finalizers hold it: {holders or 'none'}."
    return RolloutPlan(
        progress=ContainerPhase.STOPPING,
        reason="Deleting",
        message=message,
        active="",
        frees_hostnames=True,
    )


def stopped_container_deletes_its_enclaves(state: RolloutState) -> RolloutPlan | None:
    """Delete everything when spec.state is Stopped; stopping until the last Pod is gone."""
    if not state.is_stopped:
        return None
    if state.enclaves or enclave_names(*state.all_enclaves) & state.observed.pods:
        return RolloutPlan(
            progress=ContainerPhase.STOPPING,
            reason="Stopping",
            message="The enclaves of the container are being deleted.",
            active="",
        )
    return RolloutPlan(
        progress=ContainerPhase.STOPPED,
        reason="Stopped",
        message="The container is stopped; set spec.state to Running to start it.",
        settled=True,
        active="",
    )


def followed_release_is_looked_up(state: RolloutState) -> RolloutPlan | None:
    """Leave everything unchanged until it is known which release automatic updates follow."""
    followed = state.followed_release
    if not followed.pending:
        return None
    failure = followed.failure
    return RolloutPlan(
        progress=ContainerPhase.PENDING if failure else ContainerPhase.DEPLOYING,
        reason=reason_for(failure.reason).word if failure else "Resolving",
        message=failure.message if failure else "The newest release is being looked up.",
        keep=enclave_names(*state.enclaves),
    )


def wanted_request_serves(state: RolloutState) -> RolloutPlan | None:
    """Be ready when the wanted request serves; others are deleted once the Service routes to it."""
    serving = state.serving
    if serving is None or state.served_attempts is not None:
        return None
    name = serving.metadata.name
    if state.is_routed:
        return RolloutPlan(
            progress=ContainerPhase.READY,
            reason="Serving",
            message=_serves(serving),
            settled=True,
            active=name,
            keep=enclave_names(serving),
        )
    return RolloutPlan(
        progress=ContainerPhase.READY,
        reason="Routing",
        message=f"Tag {serving.spec.tag} is ready; the Service is being pointed at it.",
        active=name,
        keep=enclave_names(serving),
        route=name,
    )


def staged_candidate_awaits_promotion(state: RolloutState) -> RolloutPlan | None:
    """Let a ready candidate wait until spec.promote names its revision, where updates are staged.

    During a rollback of what served the container is not ready, and the candidate keeps waiting.
    """
    ready = state.wanted_attempts.ready
    if ready is None or state.served_attempts is None or not state.is_staging:
        return None
    if ready.spec.stop_first:
        return None
    if state.container.spec.promote == ready.spec.revision:
        return None
    serves = state.serving is not None
    name, where = ready.metadata.name, ready.spec.preview
    tried = f" Try it at https://{where}." if where else ""
    return RolloutPlan(
        progress=ContainerPhase.READY if serves else ContainerPhase.DEPLOYING,
        reason="AwaitingPromotion" if serves else "PodLost",
        message=f"Tag {ready.spec.tag} is ready and waits.{tried} Set spec.promote to "
        f"{ready.spec.revision}, or accept the update, to promote it.",
        settled=state.is_routed,
        candidate=name,
        keep=enclave_names(ready),
        preview=name,
    )


def ready_candidate_is_promoted(state: RolloutState) -> RolloutPlan | None:
    """Promote a ready candidate: the switch of a blue-green update, recorded in status.

    Where nothing serves, the Service is pointed at it first, so that ready is never reported early.
    """
    ready = state.wanted_attempts.ready
    if ready is None:
        return None
    name = ready.metadata.name
    may_be_ready = may_move(state.status.phase, ContainerPhase.READY)
    if state.serving is None and not (state.routes_to(ready) and may_be_ready):
        return RolloutPlan(
            progress=ContainerPhase.STARTED,
            reason="Routing",
            message=f"Tag {ready.spec.tag} is ready; the Service is being pointed at it.",
            candidate=name,
            keep=enclave_names(
                ready, state.active, state.wanted_attempts.origin, state.last_failure
            ),
            route=name,
        )
    served = state.routes_to(ready)
    return RolloutPlan(
        progress=ContainerPhase.READY,
        reason="Serving" if served else "Routing",
        message=_serves(ready)
        if served
        else f"Tag {ready.spec.tag} is promoted; the Service is being pointed at it.",
        settled=served,
        active=name,
        keep=enclave_names(ready),
    )


def starting_candidate_is_awaited(state: RolloutState) -> RolloutPlan | None:
    """Wait for an attempt of the wanted request that is starting."""
    live = state.wanted_attempts.live
    if live is None:
        return None
    is_up = live.status.phase is EnclavePhase.STARTED
    updates = state.serving is not None
    updating = "StopFirst" if live.spec.stop_first else "Updating"
    usual = updating if updates else "Starting" if is_up else "Deploying"
    step = "its health checks run" if is_up else "its Pod is not up yet"
    return RolloutPlan(
        progress=ContainerPhase.STARTED if is_up else ContainerPhase.DEPLOYING,
        reason=live.status.reason if is_transient_reason(live.status.reason) else usual,
        message=live.status.message or f"Tag {live.spec.tag} is starting: {step}.",
        candidate=live.metadata.name,
        keep=enclave_names(live, state.wanted_attempts.origin),
    )


def lost_attempt_is_retried(state: RolloutState) -> RolloutPlan | None:
    """Retry the newest attempt when it was lost, after a backoff."""
    attempts = state.wanted_attempts
    if not is_lost(state, attempts) or attempts.origin is None:
        return None
    lost = attempts.newest or attempts.origin
    reason = lost.status.reason if is_transient_reason(lost.status.reason) else "PodLost"
    message = lost.status.message or "The enclave was lost."
    retry_at = attempts.retry_at(state.now)
    keep = enclave_names(attempts.origin, attempts.newest)
    if find_host(attempts.origin.spec.host, state.observed.hosts) is None:
        return RolloutPlan(
            progress=ContainerPhase.FAILED,
            reason="HostNotFound",
            message=f"{message} Its Host {attempts.origin.spec.host} does not exist any more; "
            "set spec.host, or ask the administrator to bring the Host back.",
            stalled=True,
            keep=keep,
        )
    if retry_at > state.now:
        return RolloutPlan(
            progress=ContainerPhase.DEPLOYING,
            reason=reason,
            message=f"{message} The next attempt follows at {retry_at:%H:%M:%S} UTC.",
            candidate=lost.metadata.name,
            keep=keep,
            retry_at=retry_at,
        )
    created = next_attempt(state, attempts)
    return RolloutPlan(
        progress=ContainerPhase.DEPLOYING,
        reason=reason,
        message=f"{message} Attempt {created.spec.attempt} follows.",
        candidate=created.name,
        keep=keep | {created.name},
        actions=(created,),
    )


def failed_request_waits_for_a_new_one(state: RolloutState) -> RolloutPlan | None:
    """Keep the Enclave of an attempt that failed permanently, for its status."""
    failed = state.wanted_attempts.failed
    if failed is None:
        return None
    reason, message = failed.status.reason, failed.status.message
    if is_transient_reason(reason):
        losses = state.wanted_attempts.losses(state.now)
        message = f"Given up after {losses} lost attempts; the last one: {message}"
        reason = "AttemptsExhausted"
    if reason not in REASONS:
        reason = "BootFailed"
    return RolloutPlan(
        progress=ContainerPhase.FAILED,
        reason=reason,
        message=message or REASONS[reason].meaning,
        stalled=True,
        candidate=failed.metadata.name if state.is_update and state.serving is not None else "",
        keep=enclave_names(failed),
    )


def refused_request_is_stalled(state: RolloutState, admission: Admission) -> RolloutPlan | None:
    """Stall while an action is required before an Enclave is created."""
    if not isinstance(admission, AdmissionRefused):
        return None
    return _refusal(state, admission.reason, admission.message)


def failed_lookup_is_retried(_state: RolloutState, admission: Admission) -> RolloutPlan | None:
    """Wait for what may become available, and look it up again."""
    if not isinstance(admission, AdmissionDelayed):
        return None
    return RolloutPlan(
        progress=ContainerPhase.PENDING,
        reason=admission.reason,
        message=admission.message,
        needs=admission.needs,
        retry_at=admission.retry_at,
    )


def missing_lookup_is_requested(state: RolloutState, admission: Admission) -> RolloutPlan | None:
    """Request lookups that are missing; a known failure stays in status until they are done."""
    if not isinstance(admission, AdmissionUnresolved):
        return None
    ready = condition(state.status.conditions, "Ready")
    if (
        ready is not None
        and ready.status is ConditionStatus.FALSE
        and state.was_reported
        and holds(state.status.conditions, "Stalled")
    ):
        return RolloutPlan(
            progress=ContainerPhase.FAILED,
            reason=ready.reason,
            message=ready.message,
            stalled=True,
            needs=admission.needs,
        )
    return _resolving(admission.needs)


def staged_update_with_several_gpus_is_refused(
    state: RolloutState, admission: Admission
) -> RolloutPlan | None:
    """Refuse to stage an update of the Recreate strategy: nothing would serve meanwhile.

    A default of true refuses nothing: it does not count for such updates.
    """
    if not isinstance(admission, AdmissionGranted) or state.served_attempts is None:
        return None
    if not (state.explicit_staging and needs_recreate(state, admission)):
        return None
    message = (
        f"With {most_gpus(state, admission)} GPUs the present release is deleted before the next "
        "one starts, so that none can wait for promotion; set spec.staging to false."
    )
    return _refusal(state, "StagingNotPossible", message)


def taken_hostname_stalls(state: RolloutState, admission: Admission) -> RolloutPlan | None:
    """Stall while another Container holds a host name that is wanted."""
    if not isinstance(admission, AdmissionGranted):
        return None
    claims = state.observed.claims
    taken = [
        each
        for each in state.hostnames
        if each in claims
        and not is_held_by(claims[each], state.container)
        and not state.inherits_hostname(each)
    ]
    if not taken:
        return None
    message = (
        f"The host name {taken[0]} is held by another container; choose another name, or delete "
        "the other container: this one then continues automatically."
    )
    return _refusal(state, "HostnameTaken", message)


def free_hostname_is_claimed(state: RolloutState, admission: Admission) -> RolloutPlan | None:
    """Claim a host name that is wanted and not held yet."""
    if not isinstance(admission, AdmissionGranted):
        return None
    claims = state.observed.claims
    free = [each for each in state.hostnames if each not in claims]
    leaving = [
        each
        for each in state.hostnames
        if each in claims
        and claims[each].metadata.deletion_timestamp is not None
        and not state.inherits_hostname(each)
    ]
    if not free and not leaving:
        return None
    return _resolving((), tuple(ClaimHostname(each) for each in free))


def admitted_request_gets_an_enclave(
    state: RolloutState, admission: Admission
) -> RolloutPlan | None:
    """Create the first attempt when nothing is missing."""
    if not isinstance(admission, AdmissionGranted):
        return None
    created = first_attempt(state, admission)
    usual = "StopFirst" if created.spec.stop_first else "Updating"
    return RolloutPlan(
        progress=ContainerPhase.DEPLOYING,
        reason=usual if state.serving is not None else "Deploying",
        message=f"Tag {created.spec.tag} is starting: its Pod is not up yet.",
        candidate=created.name,
        keep=frozenset({created.name}),
        actions=(created,),
    )


def is_transient_reason(reason: str) -> bool:
    """Return whether a reason is in the table and transient."""
    return reason in REASONS and is_transient(reason)


def _resolving(needs: tuple[Need, ...], claims: tuple[ClaimHostname, ...] = ()) -> RolloutPlan:
    # Lookups are a part of deploying, which is what the create responded; pending is for waits.
    return RolloutPlan(
        progress=ContainerPhase.DEPLOYING,
        reason="Resolving",
        message="The release, its images, secrets and host name are being looked up.",
        needs=needs,
        actions=claims,
    )


def _serves(enclave: Enclave) -> str:
    where = f" at https://{enclave.spec.hostnames[0]}" if enclave.spec.hostnames else ""
    return f"Tag {enclave.spec.tag} serves{where}."


def _refusal(state: RolloutState, reason: str, message: str) -> RolloutPlan:
    """Refuse; what others can free is checked again, and what never ran holds no host name."""
    recheck_at = state.now + state.settings.taken_recheck if REASONS[reason].recheck else None
    never_ran = (
        not state.all_enclaves and not state.status.history and not state.status.active_enclave
    )
    return RolloutPlan(
        progress=ContainerPhase.FAILED,
        reason=reason,
        message=message,
        stalled=True,
        retry_at=recheck_at,
        frees_hostnames=never_ran,
    )


RULES: tuple[Rule, ...] = (
    replaced_container_deletes_its_enclaves,
    stopped_container_deletes_its_enclaves,
    followed_release_is_looked_up,
    serving_enclave_moves_off_a_cordoned_node,
    wanted_request_serves,
    recreate_deletes_the_present_release,
    staged_candidate_awaits_promotion,
    hostnames_transfer_to_the_ready_replacement,
    ready_candidate_is_promoted,
    starting_candidate_is_awaited,
    lost_attempt_is_retried,
    failed_request_waits_for_a_new_one,
)
"""Rules about the Enclaves that exist."""

ADMISSION_RULES: tuple[AdmissionRule, ...] = (
    refused_request_is_stalled,
    failed_lookup_is_retried,
    missing_lookup_is_requested,
    staged_update_with_several_gpus_is_refused,
    taken_hostname_stalls,
    free_hostname_is_claimed,
    admitted_request_gets_an_enclave,
)
"""Rules about a request that has no Enclave yet, tried when none of `RULES` matches."""
