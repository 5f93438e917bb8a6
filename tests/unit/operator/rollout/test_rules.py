"""Each rule of a rollout alone: when it matches, and when it must not."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from cloister_crds.kinds.container import (
    Container,
    ContainerPhase,
    ContainerStatus,
    DesiredState,
)
from cloister_crds.kinds.enclave import Enclave, EnclavePhase
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from cloister_crds.lifecycle.state.observed import NeedRelease, Observed, ServiceFacts
from cloister_operator.rollout.admission import (
    Admission,
    AdmissionDelayed,
    AdmissionGranted,
    AdmissionRefused,
    AdmissionUnresolved,
)
from cloister_operator.rollout.decision import ClaimHostname, CreateEnclave
from cloister_operator.rollout.new_attempt import (
    recreate_deletes_the_present_release,
    serving_enclave_moves_off_a_cordoned_node,
)
from cloister_operator.rollout.replacement import (
    hostnames_transfer_to_the_ready_replacement,
    replaced_container_deletes_its_enclaves,
)
from cloister_operator.rollout.rollout_state import RolloutState
from cloister_operator.rollout.rules import (
    ADMISSION_RULES,
    RULES,
    AdmissionRule,
    Rule,
    admitted_request_gets_an_enclave,
    failed_lookup_is_retried,
    failed_request_waits_for_a_new_one,
    followed_release_is_looked_up,
    free_hostname_is_claimed,
    lost_attempt_is_retried,
    missing_lookup_is_requested,
    ready_candidate_is_promoted,
    refused_request_is_stalled,
    staged_candidate_awaits_promotion,
    staged_update_with_several_gpus_is_refused,
    starting_candidate_is_awaited,
    stopped_container_deletes_its_enclaves,
    taken_hostname_stalls,
    wanted_request_serves,
)
from tests.support.builders.resources import (
    COMMIT,
    DOMAIN,
    IMAGE,
    NOW,
    SETTINGS,
    claim_of,
    container_of,
    enclave_of,
    file_of,
    host_of,
    image_of,
    organization_of,
    release_of,
    subspec,
)

HOSTNAME = f"web.acme.{DOMAIN}"
OLD = container_of()
NEW = subspec(OLD, tag="v1.1.0")


def served(container: Container, **status: Any) -> ContainerStatus:
    """Build the status of a Container whose first attempt serves."""
    given = {"phase": ContainerPhase.READY, "active_enclave": enclave_of(container).metadata.name}
    return ContainerStatus.model_validate({**given, **status})


def state_of(
    container: Container, *enclaves: Enclave, now: datetime = NOW, **fields: Any
) -> RolloutState:
    """Build a state in which everything is well outside."""
    given: dict[str, Any] = {
        "container": container,
        "settings": SETTINGS,
        "organization": organization_of(),
        "hosts": (host_of(),),
        "enclaves": enclaves,
        "pods": frozenset(each.metadata.name for each in enclaves),
        "claims": {HOSTNAME: claim_of(HOSTNAME)},
        "rank": 0,
        **fields,
    }
    return RolloutState(Observed(**given), now)


def routed(enclave: Enclave) -> ServiceFacts:
    """Build a Service that shows an Enclave."""
    return ServiceFacts(
        selects=enclave.metadata.name, addresses=frozenset({enclave.status.address})
    )


def with_status(container: Container, status: ContainerStatus) -> Container:
    """Return a Container a status."""
    return container.model_copy(update={"status": status})


READY = enclave_of(OLD)
STARTING = enclave_of(OLD, phase=EnclavePhase.STARTED)
LOST = enclave_of(OLD, phase=EnclavePhase.FAILED, reason="PodLost", message="The Pod is gone.")
BROKEN = enclave_of(OLD, phase=EnclavePhase.FAILED, reason="BootFailed", message="exit code 1")
SERVING = with_status(OLD, served(OLD))
UPDATING = with_status(NEW, served(OLD))
STOPPED = subspec(SERVING, state=DesiredState.STOPPED)
WAITING = enclave_of(NEW, generation=2, phase=EnclavePhase.PENDING)
WAITING = WAITING.model_copy(update={"spec": WAITING.spec.model_copy(update={"stop_first": True})})
HEIR = container_of(replaces="old")
PASSING = {HOSTNAME: claim_of(HOSTNAME, holder="old")}
CANDIDATE = enclave_of(NEW, generation=2, address="10.0.0.2")

SCENES: dict[str, tuple[Rule | None, RolloutState]] = {
    "fresh": (None, state_of(OLD)),
    "fresh, stopped": (
        stopped_container_deletes_its_enclaves,
        state_of(subspec(OLD, state=DesiredState.STOPPED)),
    ),
    "stopped, still there": (
        stopped_container_deletes_its_enclaves,
        state_of(STOPPED, READY, service=routed(READY)),
    ),
    "on its way": (starting_candidate_is_awaited, state_of(OLD, STARTING)),
    "first ready": (ready_candidate_is_promoted, state_of(OLD, READY)),
    "first ready and shown": (
        ready_candidate_is_promoted,
        state_of(OLD, READY, service=routed(READY)),
    ),
    "it is not known what to follow": (
        followed_release_is_looked_up,
        state_of(subspec(SERVING, auto_update=True), READY, service=routed(READY)),
    ),
    "serves": (wanted_request_serves, state_of(SERVING, READY, service=routed(READY))),
    "serves on a node that is drained": (
        serving_enclave_moves_off_a_cordoned_node,
        state_of(SERVING, READY, service=routed(READY), cordoned=frozenset({READY.metadata.name})),
    ),
    "serves, Service gone": (wanted_request_serves, state_of(SERVING, READY)),
    "another request wanted": (None, state_of(UPDATING, READY, service=routed(READY))),
    "candidate beside": (
        starting_candidate_is_awaited,
        state_of(
            UPDATING,
            READY,
            enclave_of(NEW, generation=2, phase=EnclavePhase.PENDING),
            service=routed(READY),
        ),
    ),
    "candidate ready": (
        ready_candidate_is_promoted,
        state_of(UPDATING, READY, CANDIDATE, service=routed(READY)),
    ),
    "candidate ready, staged": (
        staged_candidate_awaits_promotion,
        state_of(subspec(UPDATING, staging=True), READY, CANDIDATE, service=routed(READY)),
    ),
    "candidate ready, staged and promoted": (
        ready_candidate_is_promoted,
        state_of(
            subspec(UPDATING, staging=True, promote=CANDIDATE.spec.revision),
            READY,
            CANDIDATE,
            service=routed(READY),
        ),
    ),
    "candidate waits for the GPUs of what serves": (
        recreate_deletes_the_present_release,
        state_of(UPDATING, READY, WAITING, service=routed(READY)),
    ),
    "lost before it was ready": (lost_attempt_is_retried, state_of(OLD, LOST)),
    "lost while it served": (lost_attempt_is_retried, state_of(SERVING, LOST)),
    "deleted while it served": (
        lost_attempt_is_retried,
        state_of(SERVING, enclave_of(OLD, deleting=True)),
    ),
    "deleted before it served": (None, state_of(OLD, enclave_of(OLD, deleting=True))),
    "gone while it served": (None, state_of(SERVING)),
    "broken": (failed_request_waits_for_a_new_one, state_of(OLD, BROKEN)),
    "broken, next attempt ready": (
        ready_candidate_is_promoted,
        state_of(OLD, BROKEN, enclave_of(OLD, attempt=2, at=NOW)),
    ),
    "broken, another request wanted": (None, state_of(NEW, BROKEN)),
    "lost too often": (
        failed_request_waits_for_a_new_one,
        state_of(
            OLD,
            enclave_of(OLD, attempt=11, phase=EnclavePhase.FAILED, reason="Evicted", losses=10),
        ),
    ),
    "lost often, but it has served": (
        lost_attempt_is_retried,
        state_of(
            SERVING,
            enclave_of(OLD, phase=EnclavePhase.FAILED, reason="PodLost", promoted=True),
            enclave_of(
                OLD, attempt=12, phase=EnclavePhase.FAILED, reason="Evicted", losses=11, at=NOW
            ),
        ),
    ),
    "ready, its name still with the one that it replaces": (
        hostnames_transfer_to_the_ready_replacement,
        state_of(HEIR, READY, service=routed(READY), inherits_hostnames=True, claims=PASSING),
    ),
    "ready and not reached yet, its name still with another one": (
        ready_candidate_is_promoted,
        state_of(HEIR, READY, inherits_hostnames=True, claims=PASSING),
    ),
    "serves, its successor is on its way": (
        wanted_request_serves,
        state_of(SERVING, READY, service=routed(READY), successor=HEIR),
    ),
    "another Container has taken over": (
        replaced_container_deletes_its_enclaves,
        state_of(SERVING, READY, service=routed(READY), successor=with_status(HEIR, served(OLD))),
    ),
    "enclaves of an earlier Container of that name": (
        None,
        state_of(container_of(uid="ctr-2"), READY),
    ),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize(("want", "state"), SCENES.values(), ids=SCENES)
def test_each_rule_answers_its_own_scenes_first(
    rule: Rule, want: Rule | None, state: RolloutState
) -> None:
    first = next((each for each in RULES if each(state) is not None), None)
    assert first is want
    if rule is not want and (want is None or RULES.index(rule) < RULES.index(want)):
        assert rule(state) is None


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_each_rule_has_a_state_of_its_own_and_one_that_is_not(rule: Rule) -> None:
    assert any(want is rule for want, _ in SCENES.values())
    assert any(rule(state) is None for _, state in SCENES.values())


NEED = NeedRelease(repo="acme/site", tag="v1.0.0", commit=None, request="x")
ADMITTED = AdmissionGranted(
    release=release_of(),
    config=file_of(),
    host=host_of(),
    images=(("web", image_of(IMAGE)),),
    secrets=(),
)
FREE = state_of(OLD, claims={})
HELD = state_of(OLD)
TAKEN = state_of(OLD, claims={HOSTNAME: claim_of(HOSTNAME, holder="other")})
LEAVING = state_of(OLD, claims={HOSTNAME: claim_of(HOSTNAME, deleting=True)})
ADMISSIONS: dict[str, tuple[AdmissionRule, RolloutState, Admission]] = {
    "refused": (refused_request_is_stalled, HELD, AdmissionRefused("TagNotFound", "no such tag")),
    "waiting": (
        failed_lookup_is_retried,
        HELD,
        AdmissionDelayed("SourceUnavailable", "no answer", NOW),
    ),
    "asking": (missing_lookup_is_requested, HELD, AdmissionUnresolved((NEED,))),
    "taken": (taken_hostname_stalls, TAKEN, ADMITTED),
    "free": (free_hostname_is_claimed, FREE, ADMITTED),
    "being given back": (free_hostname_is_claimed, LEAVING, ADMITTED),
    "several GPUs, staged": (
        staged_update_with_several_gpus_is_refused,
        state_of(subspec(UPDATING, staging=True, gpus=8), READY, service=routed(READY)),
        ADMITTED,
    ),
    "admitted": (admitted_request_gets_an_enclave, HELD, ADMITTED),
}


@pytest.mark.parametrize("rule", ADMISSION_RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize(("want", "state", "admission"), ADMISSIONS.values(), ids=ADMISSIONS)
def test_each_admission_rule_answers_its_own_admission(
    rule: AdmissionRule, want: AdmissionRule, state: RolloutState, admission: Admission
) -> None:
    place, wanted = ADMISSION_RULES.index(rule), ADMISSION_RULES.index(want)
    if place <= wanted:
        assert (rule(state, admission) is not None) == (rule is want)


@pytest.mark.parametrize("rule", ADMISSION_RULES, ids=lambda rule: rule.__name__)
def test_each_admission_rule_has_an_admission_that_is_not_its_own(rule: AdmissionRule) -> None:
    assert any(rule(state, admission) is None for _, state, admission in ADMISSIONS.values())


def test_the_last_rule_makes_the_enclave() -> None:
    verdict = admitted_request_gets_an_enclave(HELD, ADMITTED)
    assert verdict is not None
    (made,) = verdict.actions
    assert isinstance(made, CreateEnclave)
    assert made.name == f"web-{HELD.revision}-1"
    assert made.file == release_of().raw
    assert made.copy_from is None
    spec = made.spec
    assert (spec.attempt, spec.losses, spec.commit) == (1, 0, COMMIT)
    assert spec.config_digest == release_of().digest
    assert spec.hostnames == (HOSTNAME,)
    assert spec.images[0].cmd == ("/serve",)
    assert spec.summary.upstream == "web"
    assert spec.host == "plain"


def test_a_free_name_is_claimed_and_one_that_leaves_is_waited_for() -> None:
    claimed = free_hostname_is_claimed(FREE, ADMITTED)
    assert claimed is not None
    assert claimed.actions == (ClaimHostname(HOSTNAME),)
    waited = free_hostname_is_claimed(LEAVING, ADMITTED)
    assert waited is not None
    assert waited.actions == ()


def test_a_taken_name_is_looked_at_every_minute() -> None:
    verdict = taken_hostname_stalls(TAKEN, ADMITTED)
    assert verdict is not None
    assert (verdict.stalled, verdict.reason) == (True, "HostnameTaken")
    assert verdict.retry_at == NOW + timedelta(minutes=1)


def test_attempts_count_those_of_an_earlier_container_of_that_name() -> None:
    other = enclave_of(container_of(uid="ctr-0"), attempt=4)
    verdict = admitted_request_gets_an_enclave(state_of(OLD, other), ADMITTED)
    assert verdict is not None
    assert verdict.candidate.endswith("-5")


def test_a_repetition_copies_what_was_resolved() -> None:
    lost = enclave_of(OLD, phase=EnclavePhase.FAILED, reason="PodLost", promoted=True, losses=2)
    state = state_of(SERVING, lost, now=NOW + timedelta(minutes=5))
    verdict = lost_attempt_is_retried(state)
    assert verdict is not None
    (made,) = verdict.actions
    assert isinstance(made, CreateEnclave)
    assert (made.copy_from, made.file) == (lost.metadata.name, None)
    assert made.name == f"web-{lost.spec.revision}-2"
    assert made.spec == lost.spec.model_copy(update={"attempt": 2, "losses": 3})
    assert lost.metadata.name in verdict.keep


@pytest.mark.parametrize(
    ("losses", "was_ready", "wait"),
    [(0, False, 10), (1, False, 20), (9, False, 300), (0, True, 0), (1, True, 10), (2, True, 20)],
)
def test_repetitions_wait_longer_each_time(losses: int, was_ready: bool, wait: int) -> None:  # noqa: FBT001 - a column of the table
    lost = enclave_of(
        OLD,
        phase=EnclavePhase.FAILED,
        reason="NodeLost",
        losses=losses,
        ready_at=NOW - timedelta(seconds=20) if was_ready else None,
    )
    due = NOW + timedelta(seconds=wait)
    if wait:
        early = lost_attempt_is_retried(state_of(OLD, lost, now=due - timedelta(seconds=1)))
        assert early is not None
        assert early.actions == ()
        assert early.retry_at == due
        assert early.reason == "NodeLost"
    late = lost_attempt_is_retried(state_of(OLD, lost, now=due))
    assert late is not None
    assert len(late.actions) == 1


def test_what_was_ready_for_long_is_repeated_at_once_and_counted_anew() -> None:
    lost = enclave_of(
        OLD,
        phase=EnclavePhase.FAILED,
        reason="PodLost",
        losses=7,
        ready_at=NOW - timedelta(minutes=5),
    )
    verdict = lost_attempt_is_retried(state_of(SERVING, lost))
    assert verdict is not None
    (made,) = verdict.actions
    assert isinstance(made, CreateEnclave)
    assert made.spec.losses == 0


def test_a_repetition_without_its_host_stalls() -> None:
    verdict = lost_attempt_is_retried(state_of(SERVING, LOST, hosts=()))
    assert verdict is not None
    assert (verdict.reason, verdict.stalled, verdict.actions) == ("HostNotFound", True, ())


def test_a_known_failure_stands_while_its_question_is_asked_again() -> None:
    findings = [
        ConditionUpdate("Ready", status=False, reason="SecretNotFound", message="no A"),
        ConditionUpdate("Stalled", status=True, reason="SecretNotFound", message="no A"),
    ]
    conditions = merge((), findings, generation=1, now=NOW)
    state = state_of(with_status(OLD, ContainerStatus(conditions=conditions)))
    verdict = missing_lookup_is_requested(state, AdmissionUnresolved((NEED,)))
    assert verdict is not None
    assert (verdict.stalled, verdict.reason, verdict.message) == (True, "SecretNotFound", "no A")
    assert verdict.needs == (NEED,)

    newer = state_of(subspec(state.container, tag="v2"))
    fresh = missing_lookup_is_requested(newer, AdmissionUnresolved((NEED,)))
    assert fresh is not None
    assert (fresh.stalled, fresh.reason) == (False, "Resolving")
