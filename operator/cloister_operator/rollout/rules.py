"""The rules of a Container's life, in the order in which they are asked: the first answer holds.

Each is a small function with a sentence for a name; it answers a `Verdict` or None for "not my
case". Read `RULES` from top to bottom: first what ends everything, then what is there, from the
best (the wanted request serves) to the worst (it failed), then what is needed to make it.
"""

from collections.abc import Callable

from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.kinds.enclave import Enclave, EnclavePhase
from cloister_crds.kinds.meta import ConditionStatus
from cloister_crds.lifecycle.admission.host_selection import host_named
from cloister_crds.lifecycle.names.hostnames import is_held_by
from cloister_crds.lifecycle.replacement import (
    hostnames_pass_to_the_ready_successor,
    replaced_container_ends_its_enclaves,
)
from cloister_crds.lifecycle.rollout_state import Line, Scene, names
from cloister_crds.lifecycle.state.conditions import condition, holds
from cloister_crds.lifecycle.state.decision import ClaimHostname
from cloister_crds.lifecycle.state.observed import Need
from cloister_crds.lifecycle.state.reasons import REASONS, is_transient, reason_for
from cloister_crds.lifecycle.state.verdict import Verdict
from cloister_operator.rollout.admission import Admission, Admitted, Asking, Refused, Waiting
from cloister_operator.rollout.new_attempt import first_attempt, repetition
from cloister_operator.rollout.node_drain import served_enclave_leaves_a_cordoned_node
from cloister_operator.rollout.phases import may_move
from cloister_operator.rollout.recreate_strategy import (
    most_gpus,
    present_release_ends_for_its_successor,
    stops_first,
)

__all__ = ["ADMISSION_RULES", "RULES", "AdmissionRule", "Rule", "is_lost"]

Rule = Callable[[Scene], Verdict | None]
"""A rule about what is there."""
AdmissionRule = Callable[[Scene, Admission], Verdict | None]
"""A rule about a request that has nothing yet."""


def is_lost(scene: Scene, line: Line) -> bool:
    """Tell whether the newest attempt of a request is gone and another one is to follow.

    A request that never served is given up after some losses in a row.

    Parameters
    ----------
    scene
        What was observed.
    line
        Attempts of the request.
    """
    if line.newest is None:
        return line.origin is not None
    if line.failed is None or not is_transient(line.failed.status.reason):
        return False
    return line.ever_served or line.losses(scene.now) <= scene.settings.attempts


def stopped_container_ends_its_enclaves(scene: Scene) -> Verdict | None:
    """End everything when spec says Stopped; stopping until the last Pod is gone."""
    if not scene.is_stopped:
        return None
    if scene.mine or names(*scene.everyone) & scene.observed.pods:
        return Verdict(
            progress=ContainerPhase.STOPPING,
            reason="Stopping",
            message="The enclaves of the container are ending.",
            active="",
        )
    return Verdict(
        progress=ContainerPhase.STOPPED,
        reason="Stopped",
        message="The container is stopped; set spec.state to Running to start it.",
        settled=True,
        active="",
    )


def release_to_follow_is_looked_up(scene: Scene) -> Verdict | None:
    """Leave everything as it is until it is known which release automatic updates follow."""
    following = scene.following
    if not following.waits:
        return None
    trouble = following.trouble
    return Verdict(
        progress=ContainerPhase.PENDING if trouble else ContainerPhase.DEPLOYING,
        reason=reason_for(trouble.reason).word if trouble else "Resolving",
        message=trouble.message if trouble else "The newest release is being looked up.",
        keep=names(*scene.mine),
    )


def wanted_request_serves(scene: Scene) -> Verdict | None:
    """Be ready when what is wanted serves; others end as soon as the Service shows it."""
    serving = scene.serving
    if serving is None or scene.served_line is not None:
        return None
    name = serving.metadata.name
    if scene.is_routed:
        return Verdict(
            progress=ContainerPhase.READY,
            reason="Serving",
            message=_serves(serving),
            settled=True,
            active=name,
            keep=names(serving),
        )
    return Verdict(
        progress=ContainerPhase.READY,
        reason="Routing",
        message=f"Tag {serving.spec.tag} is ready; the Service is being pointed at it.",
        active=name,
        keep=names(serving),
        route=name,
    )


def staged_candidate_awaits_promotion(scene: Scene) -> Verdict | None:
    """Let a ready candidate wait until spec.promote names its revision, where updates are staged.

    While what served is being brought back, the container is not ready, and the candidate waits on.
    """
    ready = scene.wanted_line.ready
    if ready is None or scene.served_line is None or not scene.is_staging:
        return None
    if scene.container.spec.promote == ready.spec.revision:
        return None
    serves = scene.serving is not None
    name, where = ready.metadata.name, ready.spec.preview
    tried = f" Try it at https://{where}." if where else ""
    return Verdict(
        progress=ContainerPhase.READY if serves else ContainerPhase.DEPLOYING,
        reason="AwaitingPromotion" if serves else "PodLost",
        message=f"Tag {ready.spec.tag} is ready and waits.{tried} Set spec.promote to "
        f"{ready.spec.revision}, or accept the update, to let it take over.",
        settled=scene.is_routed,
        candidate=name,
        keep=names(ready),
        preview=name,
    )


def ready_candidate_takes_over(scene: Scene) -> Verdict | None:
    """Let a ready candidate take over, by a decision in status when another serves.

    Where nothing serves, the Service is pointed at it first, so that ready never comes too early.
    """
    ready = scene.wanted_line.ready
    if ready is None:
        return None
    name = ready.metadata.name
    may_be_ready = may_move(scene.status.phase, ContainerPhase.READY)
    if scene.serving is None and not (scene.shows(ready) and may_be_ready):
        return Verdict(
            progress=ContainerPhase.STARTED,
            reason="Routing",
            message=f"Tag {ready.spec.tag} is ready; the Service is being pointed at it.",
            candidate=name,
            keep=names(ready, scene.active, scene.wanted_line.origin, scene.memory),
            route=name,
        )
    served = scene.shows(ready)
    return Verdict(
        progress=ContainerPhase.READY,
        reason="Serving" if served else "Routing",
        message=_serves(ready)
        if served
        else f"Tag {ready.spec.tag} takes over; the Service is being pointed at it.",
        settled=served,
        active=name,
        keep=names(ready),
    )


def starting_candidate_is_awaited(scene: Scene) -> Verdict | None:
    """Wait for an attempt of the wanted request that is on its way."""
    live = scene.wanted_line.live
    if live is None:
        return None
    is_up = live.status.phase is EnclavePhase.STARTED
    beside = scene.serving is not None
    updating = "StopFirst" if live.spec.stop_first else "Updating"
    usual = updating if beside else "Starting" if is_up else "Deploying"
    step = "its health checks run" if is_up else "its Pod is not up yet"
    return Verdict(
        progress=ContainerPhase.STARTED if is_up else ContainerPhase.DEPLOYING,
        reason=live.status.reason if is_transient_word(live.status.reason) else usual,
        message=live.status.message or f"Tag {live.spec.tag} is on its way: {step}.",
        candidate=live.metadata.name,
        keep=names(live, scene.wanted_line.origin),
    )


def lost_attempt_is_repeated(scene: Scene) -> Verdict | None:
    """Repeat the newest attempt when it was lost, after a wait."""
    line = scene.wanted_line
    if not is_lost(scene, line) or line.origin is None:
        return None
    lost = line.newest or line.origin
    reason = lost.status.reason if is_transient_word(lost.status.reason) else "PodLost"
    message = lost.status.message or "The enclave was lost."
    retry_at = line.retry_at(scene.now)
    keep = names(line.origin, line.newest)
    if host_named(line.origin.spec.host, scene.observed.hosts) is None:
        return Verdict(
            progress=ContainerPhase.FAILED,
            reason="HostNotFound",
            message=f"{message} Its Host {line.origin.spec.host} does not exist any more; "
            "set spec.host, or ask the administrator to bring the Host back.",
            stalled=True,
            keep=keep,
        )
    if retry_at > scene.now:
        return Verdict(
            progress=ContainerPhase.DEPLOYING,
            reason=reason,
            message=f"{message} The next attempt follows at {retry_at:%H:%M:%S} UTC.",
            candidate=lost.metadata.name,
            keep=keep,
            retry_at=retry_at,
        )
    made = repetition(scene, line)
    return Verdict(
        progress=ContainerPhase.DEPLOYING,
        reason=reason,
        message=f"{message} Attempt {made.spec.attempt} follows.",
        candidate=made.name,
        keep=keep | {made.name},
        actions=(made,),
    )


def failed_request_waits_for_a_new_one(scene: Scene) -> Verdict | None:
    """Keep the Enclave of an attempt that failed for good as the memory of it."""
    failed = scene.wanted_line.failed
    if failed is None:
        return None
    reason, message = failed.status.reason, failed.status.message
    if is_transient_word(reason):
        losses = scene.wanted_line.losses(scene.now)
        message = f"Given up after {losses} lost attempts; the last one: {message}"
        reason = "AttemptsExhausted"
    if reason not in REASONS:
        reason = "BootFailed"
    return Verdict(
        progress=ContainerPhase.FAILED,
        reason=reason,
        message=message or REASONS[reason].meaning,
        stalled=True,
        candidate=failed.metadata.name if scene.is_update and scene.serving is not None else "",
        keep=names(failed),
    )


def refused_request_is_stalled(scene: Scene, admission: Admission) -> Verdict | None:
    """Stall while somebody has to change something before an Enclave is made."""
    if not isinstance(admission, Refused):
        return None
    return _refusal(scene, admission.reason, admission.message)


def unavailable_answer_is_asked_again(_scene: Scene, admission: Admission) -> Verdict | None:
    """Wait for what may come by itself, and ask again."""
    if not isinstance(admission, Waiting):
        return None
    return Verdict(
        progress=ContainerPhase.PENDING,
        reason=admission.reason,
        message=admission.message,
        needs=admission.needs,
        retry_at=admission.retry_at,
    )


def unasked_question_is_asked(scene: Scene, admission: Admission) -> Verdict | None:
    """Ask what was not asked yet; what was known to be wrong stays so until there is an answer."""
    if not isinstance(admission, Asking):
        return None
    ready = condition(scene.status.conditions, "Ready")
    if (
        ready is not None
        and ready.status is ConditionStatus.FALSE
        and scene.was_reported
        and holds(scene.status.conditions, "Stalled")
    ):
        return Verdict(
            progress=ContainerPhase.FAILED,
            reason=ready.reason,
            message=ready.message,
            stalled=True,
            needs=admission.needs,
        )
    return _resolving(admission.needs)


def staged_update_with_several_gpus_is_refused(
    scene: Scene, admission: Admission
) -> Verdict | None:
    """Refuse to stage an update that stops what serves first: nothing would serve meanwhile."""
    if not isinstance(admission, Admitted) or scene.served_line is None:
        return None
    if not (scene.is_staging and stops_first(scene, admission)):
        return None
    message = (
        f"With {most_gpus(scene, admission)} GPUs the present release ends before the next one "
        "starts, so that none can wait for promotion; set spec.staging to false."
    )
    return _refusal(scene, "StagingNotPossible", message)


def taken_hostname_stalls(scene: Scene, admission: Admission) -> Verdict | None:
    """Stall while another Container holds a host name that is wanted."""
    if not isinstance(admission, Admitted):
        return None
    claims = scene.observed.claims
    taken = [
        each
        for each in scene.hostnames
        if each in claims
        and not is_held_by(claims[each], scene.container)
        and not scene.inherits(each)
    ]
    if not taken:
        return None
    message = (
        f"The host name {taken[0]} is held by another container; choose another name, or delete "
        "the other container: this one then goes on by itself."
    )
    return _refusal(scene, "HostnameTaken", message)


def free_hostname_is_claimed(scene: Scene, admission: Admission) -> Verdict | None:
    """Claim a host name that is wanted and not held yet."""
    if not isinstance(admission, Admitted):
        return None
    claims = scene.observed.claims
    free = [each for each in scene.hostnames if each not in claims]
    leaving = [
        each
        for each in scene.hostnames
        if each in claims
        and claims[each].metadata.deletion_timestamp is not None
        and not scene.inherits(each)
    ]
    if not free and not leaving:
        return None
    return _resolving((), tuple(ClaimHostname(each) for each in free))


def admitted_request_gets_an_enclave(scene: Scene, admission: Admission) -> Verdict | None:
    """Make the first attempt when nothing is missing."""
    if not isinstance(admission, Admitted):
        return None
    made = first_attempt(scene, admission)
    usual = "StopFirst" if made.spec.stop_first else "Updating"
    return Verdict(
        progress=ContainerPhase.DEPLOYING,
        reason=usual if scene.serving is not None else "Deploying",
        message=f"Tag {made.spec.tag} is on its way: its Pod is not up yet.",
        candidate=made.name,
        keep=frozenset({made.name}),
        actions=(made,),
    )


def is_transient_word(word: str) -> bool:
    """Tell whether a word stands in the table and is transient."""
    return word in REASONS and is_transient(word)


def _resolving(needs: tuple[Need, ...], claims: tuple[ClaimHostname, ...] = ()) -> Verdict:
    # Looking up is a part of deploying, as the create has answered; pending is what has to wait.
    return Verdict(
        progress=ContainerPhase.DEPLOYING,
        reason="Resolving",
        message="The release, its images, secrets and host name are being looked up.",
        needs=needs,
        actions=claims,
    )


def _serves(enclave: Enclave) -> str:
    where = f" at https://{enclave.spec.hostnames[0]}" if enclave.spec.hostnames else ""
    return f"Tag {enclave.spec.tag} serves{where}."


def _refusal(scene: Scene, reason: str, message: str) -> Verdict:
    """Refuse; what others can free is looked at again, and what never ran holds no host name."""
    again = scene.now + scene.settings.taken_recheck if REASONS[reason].recheck else None
    fresh = not scene.everyone and not scene.status.history and not scene.status.active_enclave
    return Verdict(
        progress=ContainerPhase.FAILED,
        reason=reason,
        message=message,
        stalled=True,
        retry_at=again,
        frees_hostnames=fresh,
    )


RULES: tuple[Rule, ...] = (
    replaced_container_ends_its_enclaves,
    stopped_container_ends_its_enclaves,
    release_to_follow_is_looked_up,
    served_enclave_leaves_a_cordoned_node,
    wanted_request_serves,
    present_release_ends_for_its_successor,
    staged_candidate_awaits_promotion,
    hostnames_pass_to_the_ready_successor,
    ready_candidate_takes_over,
    starting_candidate_is_awaited,
    lost_attempt_is_repeated,
    failed_request_waits_for_a_new_one,
)
"""Rules about what is there."""

ADMISSION_RULES: tuple[AdmissionRule, ...] = (
    refused_request_is_stalled,
    unavailable_answer_is_asked_again,
    unasked_question_is_asked,
    staged_update_with_several_gpus_is_refused,
    taken_hostname_stalls,
    free_hostname_is_claimed,
    admitted_request_gets_an_enclave,
)
"""Rules about a request that has nothing yet, asked when none of `RULES` answered."""
