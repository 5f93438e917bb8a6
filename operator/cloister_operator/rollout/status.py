"""The next status of a Container, from a verdict and who serves after it. The one writer of it."""

from dataclasses import replace

from cloister_crds.kinds.container import (
    ContainerPhase,
    ContainerResources,
    ContainerStatus,
    HistoryEntry,
    HostFacts,
    LatestRelease,
    UpdatePhase,
    UpdateStatus,
    UpdateType,
)
from cloister_crds.kinds.enclave import Enclave, EnclaveSpec
from cloister_crds.lifecycle import request as requests
from cloister_crds.lifecycle.admission.confidentiality import confidence
from cloister_crds.lifecycle.admission.host_selection import findings, host_named
from cloister_crds.lifecycle.admission.key_check import key_checks
from cloister_crds.lifecycle.names.domains import domain_named
from cloister_crds.lifecycle.rollout_state import Scene, has_failed
from cloister_crds.lifecycle.state.conditions import Finding, condition, merge
from cloister_crds.lifecycle.state.decision import CreateEnclave
from cloister_crds.lifecycle.state.reasons import is_transient
from cloister_crds.lifecycle.state.verdict import Verdict
from cloister_operator.rollout.cleanup import (
    MOST_HISTORY,
    Outcome,
    ended,
    led_hostnames,
    open_to_people,
)
from cloister_operator.rollout.gateway_routes import routed_finding
from cloister_operator.rollout.phases import move

__all__ = ["report"]


_BESIDE = {
    ContainerPhase.PENDING: UpdatePhase.PENDING,
    ContainerPhase.DEPLOYING: UpdatePhase.PENDING,
    ContainerPhase.STARTED: UpdatePhase.STARTED,
    ContainerPhase.READY: UpdatePhase.READY,
    ContainerPhase.FAILED: UpdatePhase.FAILED,
}
"""Status of an update whose predecessor serves on."""


def report(scene: Scene, verdict: Verdict, outcome: Outcome) -> ContainerStatus:
    """Make the next status.

    Parameters
    ----------
    scene
        What was observed.
    verdict
        What the rule answered.
    outcome
        Who serves and what stays.

    Returns
    -------
    ContainerStatus
        The complete status; equal to the present one when nothing changed.
    """
    before = scene.status
    update = _update(scene, verdict, outcome)
    told = verdict.message if _is_trouble(verdict) else ""
    shown = _shown(scene, verdict, outcome)
    history = _history(scene, outcome)
    active = outcome.active.spec.hostnames if outcome.active else ()
    hostnames = tuple(each for each in active if scene.is_served(each)) or scene.hostnames
    return before.model_copy(
        update={
            "observed_generation": scene.container.metadata.generation,
            "phase": move(before.phase, _phase(verdict, outcome)),
            "domain": hostnames[0] if hostnames else before.domain,
            "internal_domain": hostnames[-1] if hostnames else before.internal_domain,
            "active_enclave": outcome.active.metadata.name if outcome.active else "",
            "candidate": verdict.candidate,
            "current_tag": _current_tag(scene, outcome, history),
            "resources": _resources(shown) or before.resources,
            "host": _host(scene, shown) or before.host,
            "ssh_port": _ssh_port(scene, outcome),
            "latest_release": _latest(scene),
            "update": update,
            "message": told,
            "unenforced": shown.summary.unenforced if shown else before.unenforced,
            "history": history,
            "conditions": merge(
                before.conditions,
                _findings(scene, verdict, outcome, shown, updating=update is not None),
                generation=scene.container.metadata.generation,
                now=scene.now,
            ),
        }
    )


def _latest(scene: Scene) -> LatestRelease | None:
    """Answer the newest release: kept while stopped, forgotten when it is no longer followed."""
    if not scene.container.spec.auto_update:
        return None
    return scene.following.latest or scene.status.latest_release


def _is_trouble(verdict: Verdict) -> bool:
    return verdict.stalled or is_transient(verdict.reason)


def _phase(verdict: Verdict, outcome: Outcome) -> ContainerPhase:
    if verdict.progress in {ContainerPhase.STOPPING, ContainerPhase.STOPPED}:
        return verdict.progress
    return ContainerPhase.READY if outcome.serving is not None else verdict.progress


def _update(scene: Scene, verdict: Verdict, outcome: Outcome) -> UpdateStatus | None:
    """Tell of an update while the wanted request is another one than what serves or failed."""
    beside = outcome.serving is not None
    ends = verdict.progress in {ContainerPhase.STOPPING, ContainerPhase.STOPPED}
    if ends or not scene.is_update:
        return None
    if beside and outcome.active and requests.same(outcome.active.spec.request, scene.wanted):
        return None
    if not beside and verdict.progress is ContainerPhase.FAILED:
        return None
    candidate = next((e for e in scene.mine if e.metadata.name == verdict.candidate), None)
    failed = verdict.progress is ContainerPhase.FAILED
    blue_green = beside and not _stops_first(verdict, outcome, candidate)
    return UpdateStatus(
        enclave=verdict.candidate,
        uid=candidate.metadata.uid if candidate else "",
        revision=scene.revision,
        tag=scene.wanted.tag,
        status=_BESIDE[verdict.progress] if blue_green or failed else UpdatePhase.DEPLOYING,
        type=UpdateType.BLUE_GREEN if blue_green else UpdateType.REPLACE,
        message=verdict.message if failed else "",
        preview=candidate.spec.preview if candidate and verdict.preview else "",
    )


def _stops_first(verdict: Verdict, outcome: Outcome, candidate: Enclave | None) -> bool:
    """Tell whether what serves ends before the update starts, as far as it is known."""
    made = (each for each in outcome.made if isinstance(each, CreateEnclave))
    spec = next((each.spec for each in made if each.name == verdict.candidate), None)
    spec = candidate.spec if candidate is not None else spec
    several = outcome.serving is not None and outcome.serving.spec.summary.gpus > 1
    return several or (spec is not None and spec.stop_first)


def _shown(scene: Scene, verdict: Verdict, outcome: Outcome) -> EnclaveSpec | None:
    """Answer the Enclave whose facts stand in status: what serves, else what is on its way."""
    if outcome.active is not None:
        return outcome.active.spec
    made = next((each for each in outcome.made if isinstance(each, CreateEnclave)), None)
    if made is not None:
        return made.spec
    wanted = verdict.candidate
    named = (each for each in scene.mine if each.metadata.name == wanted)
    return next((each.spec for each in named), None)


def _resources(shown: EnclaveSpec | None) -> ContainerResources | None:
    if shown is None:
        return None
    summary = shown.summary
    return ContainerResources(cpus=summary.cpus, memory_mb=summary.memory_mb, gpus=summary.gpus)


def _host(scene: Scene, shown: EnclaveSpec | None) -> HostFacts | None:
    host = host_named(shown.host, scene.observed.hosts) if shown is not None else None
    if host is None:
        return None
    return HostFacts(
        name=host.metadata.name,
        gpu_type=host.spec.gpu.type if host.spec.gpu else "",
        cpu_type=host.spec.cpu_type,
    )


def _ssh_port(scene: Scene, outcome: Outcome) -> int | None:
    """Answer the port at which people log in; None = they cannot, or not yet."""
    shells, enclave = scene.observed.shells, open_to_people(scene, outcome)
    if not enclave or shells is None or shells.selects != enclave:
        return None
    return shells.node_port or None


def _current_tag(scene: Scene, outcome: Outcome, history: tuple[HistoryEntry, ...]) -> str:
    if outcome.active is not None:
        return outcome.active.spec.tag
    served = (each.tag for each in history if each.outcome == "Served")
    return next(served, scene.wanted.tag)


def _history(scene: Scene, outcome: Outcome) -> tuple[HistoryEntry, ...]:
    """Write down what ends now, newest first; what is written already is not written again."""
    leaving = {each.metadata.name: _outcome(each) for each in ended(scene, outcome)}
    before = tuple(
        each
        for each in scene.status.history
        if leaving.get(each.enclave, each.outcome) == each.outcome
    )
    known = {each.enclave for each in before}
    fresh = tuple(
        HistoryEntry(
            enclave=each.metadata.name,
            tag=each.spec.tag,
            commit=each.spec.commit,
            outcome=_outcome(each),
            at=scene.now,
        )
        for each in reversed(ended(scene, outcome))
        if each.metadata.name not in known
    )
    return (*fresh, *before)[:MOST_HISTORY]


def _outcome(enclave: Enclave) -> str:
    if enclave.status.promoted_at is not None:
        return "Served"
    return "Failed" if has_failed(enclave) else "Ended"


def _findings(
    scene: Scene,
    verdict: Verdict,
    outcome: Outcome,
    shown: EnclaveSpec | None,
    *,
    updating: bool,
) -> tuple[Finding, ...]:
    routed = routed_finding(scene, led_hostnames(scene, outcome))
    # Ready is what spec asks for, and that includes the way to it.
    astray = routed if routed is not None and verdict.settled and not routed.status else None
    found = [
        Finding("Ready", status=False, reason=astray.reason, message=astray.message)
        if astray is not None
        else Finding("Ready", verdict.settled, verdict.reason, verdict.message)
    ]
    serving = outcome.serving
    if serving is not None and _is_reached(scene, serving):
        text = f"Tag {serving.spec.tag} serves."
        found.append(Finding("Available", status=True, reason="Serving", message=text))
    else:
        found.append(
            Finding("Available", status=False, reason=verdict.reason, message=verdict.message)
        )
    if verdict.stalled:
        reason = "UpdateFailed" if updating and serving is not None else verdict.reason
        found.append(Finding("Stalled", status=True, reason=reason, message=verdict.message))
    elif not found[0].status:
        found.append(replace(found[0], type="Reconciling", status=True))
    if routed is not None:
        found.append(routed)
    found += _of_domain(scene, shown)
    host = host_named(shown.host, scene.observed.hosts) if shown is not None else None
    if shown is not None and host is not None:
        count = len(shown.summary.containers)
        found += confidence(
            host,
            debug=shown.debug,
            without_tee=shown.request.disable_confidential,
            was_ready=outcome.active is not None and outcome.active.status.ready_at is not None,
        )
        found += findings(host, shown.summary.unenforced, containers=count)
        keys = key_checks(host) if shown.summary.checks_keys else None
        found += [keys] if keys is not None else []
    return tuple(found)


def _of_domain(scene: Scene, shown: EnclaveSpec | None) -> list[Finding]:
    """Say how the custom domain is that serves or is asked for; nothing where there is none."""
    served = next(
        (each for each in (shown.hostnames if shown else ()) if scene.is_custom(each)), ""
    )
    host = scene.container.spec.custom_domain or served
    if not host:
        return []
    domain = domain_named(host, scene.observed.domains)
    ready = condition(domain.status.conditions, "Ready") if domain is not None else None
    if domain is None:
        text = f"There is no Domain for {host} any more; create it, or set spec.customDomain."
        return [Finding("DomainReady", status=False, reason="DomainNotFound", message=text)]
    verified = domain.status.verified
    word = ready.reason if ready is not None else "DomainNotVerified"
    text = ready.message if ready is not None else f"Domain {host} was not looked at yet."
    return [Finding("DomainReady", status=verified, reason=word, message=text)]


def _is_reached(scene: Scene, serving: Enclave) -> bool:
    """Tell whether requests arrive at the serving Enclave, or at its predecessor on the way out.

    The EndpointSlice decides: it follows the Service's selector a moment later.
    """
    service = scene.observed.service
    if service is None:
        return False
    able = (serving, *(each for each in scene.mine if not has_failed(each)))
    return any(each.status.address in service.addresses for each in able if each.status.address)
