"""The decision about one Container: from what was observed to what is done and shown. Pure.

The operator calls `decide` in every pass; nothing is kept between two calls. Guarantees: the same
observation and time give the same decision; when nothing has changed the status is equal and there
are no actions; ``activeEnclave`` only ever moves to an Enclave that is ready; Ready is true only
when the Service shows what spec asks for.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.kinds.enclave import Enclave
from cloister_crds.lifecycle.rollout_state import Scene, names
from cloister_crds.lifecycle.state.decision import Action, Decision
from cloister_crds.lifecycle.state.observed import Observed
from cloister_crds.lifecycle.state.verdict import Verdict
from cloister_operator.rollout.admission import admit
from cloister_operator.rollout.cleanup import Outcome, drained_at, records, upkeep
from cloister_operator.rollout.rollback import Restoration, restore
from cloister_operator.rollout.rules import ADMISSION_RULES, RULES
from cloister_operator.rollout.status import report

__all__ = ["decide"]

SOONEST = timedelta(seconds=1)
"""Shortest time until another look."""
_UNDERWAY = {ContainerPhase.PENDING, ContainerPhase.DEPLOYING, ContainerPhase.STARTED}
"""Progress of a request that is neither there nor failed."""


def decide(observed: Observed, now: datetime) -> Decision:
    """Decide what follows from what was observed.

    Parameters
    ----------
    observed
        Everything that is known.
    now
        The present, in UTC.

    Returns
    -------
    Decision
        The next status, and what to do, to ask and when to look again.
    """
    container = observed.container
    scene = Scene(observed, now)
    if container.metadata.deletion_timestamp is not None:
        return Decision(
            rule="deleted_container_is_collected",
            status=container.status,
            actions=_farewell(scene),
        )
    if scene.is_paused:
        return Decision(rule="paused_container_is_left_alone", status=container.status)
    rule, verdict = _first_answer(scene)
    restoration = _restoration(scene, verdict)
    outcome = _outcome(scene, verdict, restoration)
    actions, needs = upkeep(scene, outcome)
    return Decision(
        rule=rule,
        status=report(scene, verdict, outcome),
        actions=actions,
        needs=(*verdict.needs, *needs, *scene.following.needs),
        look_again=_look_again(
            now,
            verdict.retry_at,
            restoration.retry_at,
            scene.following.look_at,
            drained_at(scene, outcome),
        ),
    )


def _farewell(scene: Scene) -> tuple[Action, ...]:
    """Write down that nothing serves any more; owner references collect the rest."""
    everyone = names(*scene.mine)
    nobody = Outcome(active=None, keep=everyone, route="", made=(), frees_hostnames=False)
    return records(scene, nobody)


def _first_answer(scene: Scene) -> tuple[str, Verdict]:
    for rule in RULES:
        verdict = rule(scene)
        if verdict is not None:
            return rule.__name__, verdict
    admission = admit(scene)
    for admission_rule in ADMISSION_RULES:
        verdict = admission_rule(scene, admission)
        if verdict is not None:
            return admission_rule.__name__, verdict
    raise AssertionError("the last rule answers every admission")


def _restoration(scene: Scene, verdict: Verdict) -> Restoration:
    """Look after what served, unless the verdict settles who serves."""
    return restore(scene) if verdict.active is None else Restoration()


def _outcome(scene: Scene, verdict: Verdict, restoration: Restoration) -> Outcome:
    outcome = Outcome(
        active=_active(scene, verdict, restoration),
        keep=verdict.keep | restoration.keep,
        route=verdict.route or restoration.route,
        preview=verdict.preview,
        made=(*verdict.actions, *restoration.actions),
        frees_hostnames=verdict.frees_hostnames,
    )
    if verdict.progress in _UNDERWAY and outcome.serving is None:
        # What failed before stays until its successor is ready: a cancel goes back to it.
        return replace(outcome, keep=outcome.keep | names(scene.memory))
    return outcome


def _active(scene: Scene, verdict: Verdict, restoration: Restoration) -> Enclave | None:
    name = verdict.active if verdict.active is not None else restoration.active
    if name is None:
        return scene.active
    return next((each for each in scene.everyone if each.metadata.name == name), None)


def _look_again(now: datetime, *times: datetime | None) -> timedelta | None:
    waits = [max(each - now, SOONEST) for each in times if each is not None]
    return min(waits, default=None)
