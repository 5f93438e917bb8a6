"""What is to be done besides the rule's own actions: route, record, end, release, complete.

All of it follows from who serves after the decision and which Enclaves stay.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from cloister_crds.kinds.enclave import Enclave
from cloister_crds.lifecycle.names.hostnames import superfluous_claims
from cloister_crds.lifecycle.rollout_state import Scene, has_failed
from cloister_crds.lifecycle.state.decision import (
    Action,
    ClaimHostname,
    CreateEnclave,
    EndEnclave,
    EndPreview,
    EndShells,
    EnsureDeployment,
    RecordDemoted,
    RecordServing,
    RoutePreview,
    RouteShells,
    RouteTo,
)
from cloister_crds.lifecycle.state.observed import Need
from cloister_operator.rollout.gateway_routes import changed_routes, wanted_routes
from cloister_operator.rollout.new_attempt import completion

__all__ = [
    "MOST_HISTORY",
    "Outcome",
    "drained_at",
    "ended",
    "led_hostnames",
    "open_to_people",
    "records",
    "upkeep",
]

MOST_HISTORY = 10
"""Entries that the history of a Container keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Who serves after a decision and what stays."""

    active: Enclave | None
    """Enclave that status names as serving after the decision, lost or not; None = none."""
    keep: frozenset[str]
    """Names of Enclaves that stay."""
    route: str
    """Name of the Enclave that the Service is to select; empty = leave it."""
    preview: str = ""
    """Name of the Enclave that waits for promotion; empty = none does."""
    made: tuple[Action, ...]
    """What the rules claim and make."""
    frees_hostnames: bool
    """Whether the host names of spec are given back."""

    @property
    def serving(self) -> Enclave | None:
        """The active Enclave while it can serve."""
        active = self.active
        if active is None or has_failed(active):
            return None
        return active if active.metadata.deletion_timestamp is None else None


def ended(scene: Scene, outcome: Outcome) -> tuple[Enclave, ...]:
    """Answer the Enclaves that are to end now.

    Parameters
    ----------
    scene
        What was observed.
    outcome
        Who serves and what stays. One that still gets requests stays until the Service shows the
        address of the one that serves now, and for a time after that: who leads requests here may
        learn of it late.
    """
    switching = outcome.serving is not None and not scene.shows(outcome.serving)
    until = _drained_at(scene, outcome)
    draining = switching or (until is not None and scene.now < until)
    return tuple(
        each
        for each in scene.mine
        if each.metadata.name not in outcome.keep
        and not (switching and _gets_requests(scene, each))
        and not (draining and _served(each))
    )


def _written_down(scene: Scene, leaving: tuple[Enclave, ...]) -> tuple[Enclave, ...]:
    """Answer those whose end stands in the status already: once they are gone nobody can tell.

    An operator that is killed between the two writes would else forget which tag was there. More
    than the history keeps are not waited for.
    """
    known = {each.enclave for each in scene.status.history}
    if len(leaving) > MOST_HISTORY:
        return leaving
    return tuple(each for each in leaving if each.metadata.name in known)


def drained_at(scene: Scene, outcome: Outcome) -> datetime | None:
    """Answer until when Enclaves stay that no longer serve.

    Parameters
    ----------
    scene
        What was observed.
    outcome
        Who serves and what stays.

    Returns
    -------
    datetime | None
        The time, in UTC; None = none stays, or it is not known yet from when on.
    """
    until = _drained_at(scene, outcome)
    leaving = (each for each in scene.mine if each.metadata.name not in outcome.keep)
    if until is None or until <= scene.now or not any(_served(each) for each in leaving):
        return None
    return until


def _drained_at(scene: Scene, outcome: Outcome) -> datetime | None:
    """Answer when everybody has learned who serves; None = nobody serves, or not reached yet."""
    serving = outcome.serving
    if serving is None or not scene.shows(serving):
        return None
    return (serving.status.promoted_at or scene.now) + scene.settings.drain


def _served(enclave: Enclave) -> bool:
    """Tell whether an Enclave served and still could."""
    return enclave.status.promoted_at is not None and not has_failed(enclave)


def upkeep(scene: Scene, outcome: Outcome) -> tuple[tuple[Action, ...], tuple[Need, ...]]:
    """Answer everything that is to be done, in order, and what must be asked for it.

    Parameters
    ----------
    scene
        What was observed.
    outcome
        Who serves and what stays.

    Returns
    -------
    tuple[tuple[Action, ...], tuple[Need, ...]]
        Actions and needs.
    """
    completions = tuple(_completions(scene, outcome))
    actions = (
        *_deployment(scene, outcome),
        *outcome.made,
        *(each for each in completions if isinstance(each, CreateEnclave)),
        *_claims_again(scene, outcome),
        *_routing(scene, outcome),
        *records(scene, outcome),
        *(
            EndEnclave(
                name=each.metadata.name,
                uid=each.metadata.uid,
                resource_version=each.metadata.resource_version,
            )
            for each in _written_down(scene, ended(scene, outcome))
        ),
        *superfluous_claims(
            scene.container, scene.observed.claims, _needed_hostnames(scene, outcome)
        ),
    )
    return actions, tuple(each for each in completions if not isinstance(each, CreateEnclave))


def open_to_people(scene: Scene, outcome: Outcome) -> str:
    """Answer the name of the Enclave that people log in to; empty = none.

    It is the one that serves, else the newest that is on its way, so that a start that fails can
    be looked at while it does.

    Parameters
    ----------
    scene
        What was observed.
    outcome
        Who serves and what stays.
    """
    if scene.observed.organization is None:
        return ""
    kept = [each for each in scene.mine if each.metadata.name in outcome.keep]
    underway = [each for each in kept if not has_failed(each)]
    looked_at = outcome.serving or (underway[-1] if underway else None)
    opened = looked_at is not None and looked_at.spec.debug and bool(looked_at.spec.ssh_keys)
    return looked_at.metadata.name if looked_at is not None and opened else ""


def _gets_requests(scene: Scene, enclave: Enclave) -> bool:
    service = scene.observed.service
    if service is None or has_failed(enclave):
        return False
    return service.selects == enclave.metadata.name or enclave.status.address in service.addresses


def _deployment(scene: Scene, outcome: Outcome) -> Iterator[Action]:
    has_enclave = bool(outcome.keep) or any(isinstance(e, CreateEnclave) for e in outcome.made)
    if has_enclave and scene.observed.deployment is None:
        yield EnsureDeployment(scene.wanted.repo)


def _completions(scene: Scene, outcome: Outcome) -> Iterator[CreateEnclave | Need]:
    for each in scene.mine:
        name = each.metadata.name
        if name in outcome.keep and name in scene.observed.incomplete and not has_failed(each):
            step = completion(scene, each)
            if step is not None:
                yield step


def _claims_again(scene: Scene, outcome: Outcome) -> Iterator[ClaimHostname]:
    """Claim what serves and has no claim: given back while its Domain was lost, or deleted."""
    if outcome.serving is None or scene.is_stopped or scene.observed.organization is None:
        return
    for each in outcome.serving.spec.hostnames:
        if scene.is_served(each) and each not in scene.observed.claims:
            yield ClaimHostname(each)


def led_hostnames(scene: Scene, outcome: Outcome) -> Mapping[str, str]:
    """Answer which host names the gateway is to lead to which Service.

    What serves keeps its routes while its Pod is replaced.

    Parameters
    ----------
    scene
        What was observed.
    outcome
        Who serves and what stays.
    """
    by_name = {each.metadata.name: each for each in scene.mine}
    leading = outcome.serving or by_name.get(outcome.route) or outcome.active
    return wanted_routes(scene, leading, by_name.get(outcome.preview))


def _routing(scene: Scene, outcome: Outcome) -> Iterator[Action]:
    service = scene.observed.service
    if outcome.route and (service is None or service.selects != outcome.route):
        yield RouteTo(outcome.route)
    preview = scene.observed.preview
    if outcome.preview and (preview is None or preview.selects != outcome.preview):
        yield RoutePreview(outcome.preview)
    elif not outcome.preview and preview is not None:
        yield EndPreview(preview.uid)
    shells, enclave = scene.observed.shells, open_to_people(scene, outcome)
    if enclave and (shells is None or shells.selects != enclave):
        yield RouteShells(enclave)
    elif not enclave and shells is not None:
        yield EndShells(shells.uid)
    yield from changed_routes(scene, led_hostnames(scene, outcome))


def records(scene: Scene, outcome: Outcome) -> tuple[Action, ...]:
    """Answer what is to be written down about who serves and who no longer does.

    Parameters
    ----------
    scene
        What was observed.
    outcome
        Who serves and what stays.
    """
    return tuple(_records(scene, outcome))


def _records(scene: Scene, outcome: Outcome) -> Iterator[Action]:
    serving = outcome.serving
    for each in scene.everyone:
        status = each.status
        serves = serving is not None and each.metadata.name == serving.metadata.name
        if status.promoted_at is not None and status.demoted_at is None and not serves:
            yield RecordDemoted(each.metadata.name, scene.now)
    if serving is not None and serving.status.promoted_at is None and scene.shows(serving):
        yield RecordServing(serving.metadata.name, scene.now)


def _needed_hostnames(scene: Scene, outcome: Outcome) -> frozenset[str]:
    """Answer host names of spec and of every Enclave that has a Pod or may still get one."""
    needed = set() if outcome.frees_hostnames else set(scene.hostnames)
    for each in scene.everyone:
        if each.metadata.name in scene.observed.pods or each.metadata.name in outcome.keep:
            needed.update(host for host in each.spec.hostnames if scene.is_served(host))
    if scene.observed.organization is None:
        # Without its Organization the names of spec are unknown: nothing is given back blindly.
        needed.update(scene.observed.claims)
    return frozenset(needed)
