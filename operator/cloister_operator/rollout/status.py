"""The next status of a Container, from the plan for it. Only this module writes it."""

from dataclasses import replace

from cloister_crds.kinds.container import (
    ContainerPhase,
    ContainerResources,
    ContainerStatus,
    HistoryEntry,
    HostFacts,
    LatestRelease,
    ServedBindings,
    UpdatePhase,
    UpdateStatus,
    UpdateType,
)
from cloister_crds.kinds.enclave import Enclave, EnclaveSpec
from cloister_crds.lifecycle import request as requests
from cloister_crds.lifecycle.admission.host_selection import (
    confidentiality_conditions,
    find_host,
    host_conditions,
)
from cloister_crds.lifecycle.admission.keys import keys_checked_condition
from cloister_crds.lifecycle.names.domains import find_domain
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, condition, holds, merge
from cloister_crds.lifecycle.state.reasons import is_transient
from cloister_operator.rollout.admission import moved_tag_condition
from cloister_operator.rollout.auto_update import RolloutPlan
from cloister_operator.rollout.cleanup import (
    HISTORY_LIMIT,
    enclaves_to_delete,
    routed_hostnames,
    ssh_enclave,
)
from cloister_operator.rollout.decision import CreateEnclave, move
from cloister_operator.rollout.enclave_status import CERTIFICATE_VALID
from cloister_operator.rollout.gateway_routes import routed_condition
from cloister_operator.rollout.rollout_state import RolloutState, has_failed

_UPDATE_PHASES = {
    ContainerPhase.PENDING: UpdatePhase.PENDING,
    ContainerPhase.DEPLOYING: UpdatePhase.PENDING,
    ContainerPhase.STARTED: UpdatePhase.STARTED,
    ContainerPhase.READY: UpdatePhase.READY,
    ContainerPhase.FAILED: UpdatePhase.FAILED,
}
"""Status of a blue-green update, while the old release continues to serve."""


_PAUSED = (
    "An administrator paused this container: it is not started, updated or stopped until the "
    "annotation cloister.dev/paused is taken away."
)


def is_progress(before: ContainerStatus, after: ContainerStatus) -> bool:
    """Return whether a first deployment continues and neither serves nor fails yet.

    Such a change may be written late, since the next one matters more.
    """
    under_way = {None, ContainerPhase.PENDING, ContainerPhase.DEPLOYING, ContainerPhase.STARTED}
    return {before.phase, after.phase} <= under_way and not any(
        holds(each.conditions, "Stalled") for each in (before, after)
    )


def next_status(state: RolloutState, plan: RolloutPlan) -> ContainerStatus:
    """Return the complete next status; equal to the present one when nothing changed."""
    before, successor = state.status, state.observed.successor
    plan = _with_ended_update(state, plan)
    update = _update(state, plan)
    shown = _shown(state, plan)
    history = _history(state, plan)
    active = state.active_after(plan)
    current_tag, current_commit = _present_release(state, active, history)
    served = active.spec.hostnames if active else ()
    hostnames = tuple(each for each in served if state.accepts(each)) or state.hostnames
    return before.model_copy(
        update={
            "observed_generation": state.container.metadata.generation,
            "phase": move(before.phase, _phase(state, plan)),
            "domain": hostnames[0] if hostnames else before.domain,
            "internal_domain": hostnames[-1] if hostnames else before.internal_domain,
            "active_enclave": active.metadata.name if active else "",
            "candidate": plan.candidate,
            "current_tag": current_tag,
            "current_commit": current_commit,
            "staging": _staging(state, plan),
            "own_staging": _own_staging(state, updating=update is not None),
            "requested_tag": state.wanted.tag,
            "kept_request": state.kept,
            "resources": _resources(shown) or before.resources,
            "host": _host(state, shown) or before.host,
            "ssh_port": _ssh_port(state, plan),
            "latest_release": _latest(state),
            "replaced_by": successor.metadata.name if successor else "",
            "update": update,
            "message": plan.message if _is_problem(plan) else "",
            "unenforced": shown.summary.unenforced if shown else before.unenforced,
            "secrets": _secrets(state, plan),
            "served_bindings": _served_bindings(active),
            "history": history,
            "conditions": merge(
                before.conditions,
                (
                    *_conditions(state, plan, shown, updating=update is not None),
                    *moved_tag_condition(state, current_tag, current_commit),
                ),
                generation=state.container.metadata.generation,
                now=state.now,
            ),
        }
    )


def _with_ended_update(state: RolloutState, plan: RolloutPlan) -> RolloutPlan:
    """Report that spec still requests what a stop ended: only a change of spec helps."""
    kept = state.kept
    reached = plan.settled and plan.progress is ContainerPhase.READY
    if kept is None or not kept.update_ended or not reached:
        return plan
    ended, served = kept.instead_of.tag, kept.request.tag
    what = f"to tag {ended}" if ended != served else f"of tag {served}"
    return replace(
        plan,
        settled=False,
        stalled=True,
        reason="UpdateEnded",
        message=f"{plan.message} The update {what} ended when the container was stopped or "
        f"restored, but spec still requests it: put spec back to what serves (tag {served}), and "
        "change it again to try another time.",
    )


def paused_status(state: RolloutState, plan: RolloutPlan) -> ContainerStatus:
    """Return the next status of a paused Container: as it was, but for what the pause lets pass.

    `observedGeneration` stays, and Ready with it: what spec requests now was not considered.
    """
    before, active = state.status, state.active_after(plan)
    found = [
        *_domain_condition(state, _shown(state, plan)),
        ConditionUpdate("Paused", status=True, reason="Paused", message=_PAUSED),
    ]
    fresh = {each.type for each in found}
    generation = state.container.metadata.generation
    return before.model_copy(
        update={
            "active_enclave": active.metadata.name if active else before.active_enclave,
            "served_bindings": _served_bindings(active) or before.served_bindings,
            "candidate": plan.candidate,
            "history": _history(state, plan),
            "conditions": (
                *(each for each in before.conditions if each.type not in fresh),
                *merge(before.conditions, found, generation=generation, now=state.now),
            ),
        }
    )


def _latest(state: RolloutState) -> LatestRelease | None:
    """Return the newest release: kept while stopped, dropped when it is no longer followed."""
    if not state.container.spec.auto_update:
        return None
    return state.followed_release.latest or state.status.latest_release


def _is_problem(plan: RolloutPlan) -> bool:
    return plan.stalled or is_transient(plan.reason)


def _is_stopping(plan: RolloutPlan) -> bool:
    return plan.progress in {ContainerPhase.STOPPING, ContainerPhase.STOPPED}


def _phase(state: RolloutState, plan: RolloutPlan) -> ContainerPhase:
    serves = state.serving_after(plan) is not None
    return ContainerPhase.READY if serves and not _is_stopping(plan) else plan.progress


def _update(state: RolloutState, plan: RolloutPlan) -> UpdateStatus | None:
    """Report an update while the wanted request is another one than what serves or failed.

    It is blue-green while the old release serves on, and of the Recreate strategy else.
    """
    if _is_stopping(plan) or not state.is_update:
        return None
    serving = state.serving_after(plan)
    if serving is not None and requests.is_made_for(serving.spec, state.wanted):
        return None
    failed = plan.progress is ContainerPhase.FAILED
    if serving is None and failed:
        return None
    candidate = next((e for e in state.enclaves if e.metadata.name == plan.candidate), None)
    blue_green = serving is not None and not _uses_recreate(plan, serving, candidate)
    return UpdateStatus(
        enclave=plan.candidate,
        uid=candidate.metadata.uid if candidate else "",
        revision=state.revision,
        tag=state.wanted.tag,
        status=_UPDATE_PHASES[plan.progress] if blue_green or failed else UpdatePhase.DEPLOYING,
        type=UpdateType.BLUE_GREEN if blue_green else UpdateType.REPLACE,
        message=plan.message if failed else "",
        preview=candidate.spec.preview if candidate and plan.preview else "",
    )


def _uses_recreate(plan: RolloutPlan, serving: Enclave, candidate: Enclave | None) -> bool:
    """Return whether what serves is deleted before the update starts, as far as it is known."""
    created = (each for each in plan.actions if isinstance(each, CreateEnclave))
    spec = next((each.spec for each in created if each.name == plan.candidate), None)
    spec = candidate.spec if candidate is not None else spec
    return serving.spec.summary.gpus > 1 or (spec is not None and spec.stop_first)


def _shown(state: RolloutState, plan: RolloutPlan) -> EnclaveSpec | None:
    """Return the Enclave whose facts status shows: what serves, else what is starting."""
    active = state.active_after(plan)
    if active is not None:
        return active.spec
    created = next((each for each in plan.actions if isinstance(each, CreateEnclave)), None)
    if created is not None:
        return created.spec
    named = (each for each in state.enclaves if each.metadata.name == plan.candidate)
    return next((each.spec for each in named), None)


def _secrets(state: RolloutState, plan: RolloutPlan) -> tuple[str, ...] | None:
    """Return the secrets that files name: of what serves, or served last, and of the candidate."""
    created = {each.name: each.spec for each in plan.actions if isinstance(each, CreateEnclave)}
    specs = {each.metadata.name: each.spec for each in state.all_enclaves} | created
    active = state.active_after(plan)
    names = {plan.candidate, active.metadata.name if active else ""}
    found = [specs[each].summary.secrets for each in names if each in specs]
    if not found:
        return state.status.secrets
    if None in found:
        return None
    return tuple(sorted({name for each in found for name in each or ()}))


def _served_bindings(active: Enclave | None) -> ServedBindings | None:
    """Return what the request of the serving enclave binds; it is in use until that is replaced."""
    if active is None:
        return None
    request = active.spec.request
    return ServedBindings(secrets=request.secrets, ssh_keys=request.ssh_keys)


def _resources(shown: EnclaveSpec | None) -> ContainerResources | None:
    if shown is None:
        return None
    summary = shown.summary
    return ContainerResources(cpus=summary.cpus, memory_mb=summary.memory_mb, gpus=summary.gpus)


def _host(state: RolloutState, shown: EnclaveSpec | None) -> HostFacts | None:
    host = find_host(shown.host, state.observed.hosts) if shown is not None else None
    if host is None:
        return None
    return HostFacts(
        name=host.metadata.name,
        gpu_type=host.spec.gpu.type if host.spec.gpu else "",
        cpu_type=host.spec.cpu_type,
    )


def _ssh_port(state: RolloutState, plan: RolloutPlan) -> int | None:
    """Return the port at which people log in; None if they cannot, or not yet."""
    shells, enclave = state.observed.shells, ssh_enclave(state, plan)
    if not enclave or shells is None or shells.selects != enclave:
        return None
    return shells.node_port or None


def _staging(state: RolloutState, plan: RolloutPlan) -> bool | None:
    """Return the default of staging, which is kept when the first Enclave is made."""
    was_made = bool(state.enclaves or state.status.history)
    makes = any(isinstance(each, CreateEnclave) for each in plan.actions)
    return state.default_staging if was_made or makes else state.status.staging


def _own_staging(state: RolloutState, *, updating: bool) -> bool | None:
    """Return staging of the container itself, as it was before an update in progress."""
    if updating:
        return state.status.own_staging
    spec = state.container.spec
    return state.default_staging if spec.staging is None else spec.staging


def _present_release(
    state: RolloutState, active: Enclave | None, history: tuple[HistoryEntry, ...]
) -> tuple[str, str]:
    """Return tag and commit of what serves or last served; before that the tag to run, and ""."""
    before = state.status
    if active is not None:
        return active.spec.tag, active.spec.commit
    if before.current_commit:
        return before.current_tag, before.current_commit
    # Status of an earlier release of Cloister, which did not record the commit.
    served = ((each.tag, each.commit) for each in history if each.outcome == "Served")
    return next(served, (state.wanted.tag, ""))


def _history(state: RolloutState, plan: RolloutPlan) -> tuple[HistoryEntry, ...]:
    """Record what is deleted now, newest first; what is recorded already is not recorded again."""
    leaving = enclaves_to_delete(state, plan)
    outcomes = {each.metadata.name: _outcome(each) for each in leaving}
    before = tuple(
        each
        for each in state.status.history
        if outcomes.get(each.enclave, each.outcome) == each.outcome
    )
    recorded = {each.enclave for each in before}
    added = tuple(
        HistoryEntry(
            enclave=each.metadata.name,
            tag=each.spec.tag,
            commit=each.spec.commit,
            outcome=outcomes[each.metadata.name],
            at=state.now,
            started_at=each.status.started_at,
            ready_at=each.status.ready_at,
            promoted_at=each.status.promoted_at,
            reason=each.status.reason,
            measurement=each.status.measurement,
        )
        for each in reversed(leaving)
        if each.metadata.name not in recorded
    )
    return (*added, *before)[:HISTORY_LIMIT]


def _outcome(enclave: Enclave) -> str:
    if enclave.status.promoted_at is not None:
        return "Served"
    return "Failed" if has_failed(enclave) else "Ended"


def _conditions(
    state: RolloutState, plan: RolloutPlan, shown: EnclaveSpec | None, *, updating: bool
) -> tuple[ConditionUpdate, ...]:
    active, serving = state.active_after(plan), state.serving_after(plan)
    routed = routed_condition(state, routed_hostnames(state, plan))
    # Ready means all that spec requests, and that includes the routes to it.
    unrouted = routed if routed is not None and plan.settled and not routed.status else None
    expired = (
        condition(serving.status.conditions, CERTIFICATE_VALID) if serving is not None else None
    )
    blocked = unrouted or (expired if plan.settled else None)
    found = [
        ConditionUpdate("Ready", status=False, reason=blocked.reason, message=blocked.message)
        if blocked is not None
        else ConditionUpdate("Ready", plan.settled, plan.reason, plan.message)
    ]
    if serving is not None and _is_reached(state, serving):
        text = f"Tag {serving.spec.tag} serves."
        found.append(ConditionUpdate("Available", status=True, reason="Serving", message=text))
    else:
        found.append(
            ConditionUpdate("Available", status=False, reason=plan.reason, message=plan.message)
        )
    if plan.stalled:
        reason = "UpdateFailed" if updating and serving is not None else plan.reason
        found.append(ConditionUpdate("Stalled", status=True, reason=reason, message=plan.message))
    elif not found[0].status:
        found.append(replace(found[0], type="Reconciling", status=True))
    if routed is not None:
        found.append(routed)
    if expired is not None:
        found.append(
            ConditionUpdate(
                CERTIFICATE_VALID, status=False, reason=expired.reason, message=expired.message
            )
        )
    found += _domain_condition(state, shown)
    host = find_host(shown.host, state.observed.hosts) if shown is not None else None
    if shown is not None and host is not None:
        count = len(shown.summary.containers)
        found += confidentiality_conditions(
            host,
            debug=shown.debug,
            without_tee=shown.request.disable_confidential,
            active=active.status if active is not None else None,
        )
        found += host_conditions(host, shown.summary.unenforced, containers=count)
        keys = keys_checked_condition(host) if shown.summary.checks_keys else None
        found += [keys] if keys is not None else []
    return tuple(found)


def _domain_condition(state: RolloutState, shown: EnclaveSpec | None) -> list[ConditionUpdate]:
    """Return the condition of the custom domain that serves or is requested, where there is one."""
    served = next(
        (each for each in (shown.hostnames if shown else ()) if state.is_custom(each)), ""
    )
    host = state.requested.spec.custom_domain or served
    if not host:
        return []
    domain = find_domain(host, state.observed.domains)
    ready = condition(domain.status.conditions, "Ready") if domain is not None else None
    if domain is None:
        text = f"There is no Domain for {host} any more; create it, or set spec.customDomain."
        return [ConditionUpdate("DomainReady", status=False, reason="DomainNotFound", message=text)]
    verified = domain.status.verified
    word = ready.reason if ready is not None else "DomainNotVerified"
    text = ready.message if ready is not None else f"Domain {host} was not checked yet."
    return [ConditionUpdate("DomainReady", status=verified, reason=word, message=text)]


def _is_reached(state: RolloutState, serving: Enclave) -> bool:
    """Return whether requests arrive at the serving Enclave, or at the previous one, which drains.

    The EndpointSlice decides: it follows the Service's selector a moment later.
    """
    service = state.observed.service
    if service is None:
        return False
    able = (serving, *(each for each in state.enclaves if not has_failed(each)))
    return any(each.status.address in service.addresses for each in able if each.status.address)
