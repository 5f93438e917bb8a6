"""Cleanup: what follows from who serves, besides the rule's own actions.

It moves the Services and routes, records who serves, completes interrupted Enclaves, deletes those
that no longer serve (the old half of a blue-green update, after it has drained), and releases host
names that nothing needs.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from cloister_crds.kinds.container import Container
from cloister_crds.kinds.enclave import Enclave
from cloister_crds.kinds.hostnameclaim import HostnameClaim
from cloister_crds.lifecycle.names.hostnames import is_held_by
from cloister_crds.lifecycle.state.observed import Need
from cloister_operator.rollout.auto_update import RolloutPlan
from cloister_operator.rollout.decision import (
    Action,
    ClaimHostname,
    CreateEnclave,
    DeleteEnclave,
    DeleteService,
    EnsureDeployment,
    RecordDemoted,
    RecordServing,
    ReleaseHostname,
    RouteTo,
    ServiceRole,
)
from cloister_operator.rollout.gateway_routes import changed_routes, wanted_routes
from cloister_operator.rollout.new_attempt import completed_attempt
from cloister_operator.rollout.rollout_state import RolloutState, has_failed

HISTORY_LIMIT = 10
"""Entries that the history of a Container keeps."""


def clean_up(state: RolloutState, plan: RolloutPlan) -> RolloutPlan:
    """Return the complete plan: all actions in order, all lookups, and when draining ends."""
    completions = tuple(_completions(state, plan))
    # The order is that in which a crash does least harm: create, route, record who serves, delete.
    actions = (
        *_deployment(state, plan),
        *plan.actions,
        *(each for each in completions if isinstance(each, CreateEnclave)),
        *_missing_claims(state, plan),
        *_routing(state, plan),
        *_serving_records(state, plan),
        *_deletions(state, plan),
        *unneeded_claims(state.container, state.observed.claims, _needed_hostnames(state, plan)),
    )
    needs = (each for each in completions if not isinstance(each, CreateEnclave))
    return replace(plan, actions=actions).with_needs(*needs).retrying_at(_drained_at(state, plan))


def enclaves_to_delete(state: RolloutState, plan: RolloutPlan) -> tuple[Enclave, ...]:
    """Return the Enclaves to delete now.

    In a blue-green update the old one stays until the Service routes to the new one, and drains
    after that: clients and proxies may learn of the change late.
    """
    serving = state.serving_after(plan)
    switching = serving is not None and not state.routes_to(serving)
    until = _draining_until(state, plan)
    draining = switching or (until is not None and state.now < until)
    return tuple(
        each
        for each in _not_kept(state, plan)
        if not (switching and _gets_requests(state, each)) and not (draining and _served(each))
    )


def _deletions(state: RolloutState, plan: RolloutPlan) -> Iterator[DeleteEnclave]:
    """Delete those that the history in status already has.

    An operator that is killed between the two writes would else forget which tag was there. More
    than the history holds are not waited for.
    """
    recorded = {each.enclave for each in state.status.history}
    leaving = enclaves_to_delete(state, plan)
    needs_no_record = state.is_deleting or len(leaving) > HISTORY_LIMIT
    for each in leaving:
        if needs_no_record or each.metadata.name in recorded:
            yield DeleteEnclave(
                name=each.metadata.name,
                uid=each.metadata.uid,
                resource_version=each.metadata.resource_version,
            )


def _not_kept(state: RolloutState, plan: RolloutPlan) -> Iterator[Enclave]:
    return (each for each in state.enclaves if each.metadata.name not in plan.keep)


def _drained_at(state: RolloutState, plan: RolloutPlan) -> datetime | None:
    """Return when the last Enclave has drained; None if none drains, or it is not known yet."""
    until = _draining_until(state, plan)
    if until is None or until <= state.now:
        return None
    return until if any(_served(each) for each in _not_kept(state, plan)) else None


def _draining_until(state: RolloutState, plan: RolloutPlan) -> datetime | None:
    """Return when all clients know who serves; None if nobody serves, or is not routed to yet."""
    serving = state.serving_after(plan)
    if serving is None or not state.routes_to(serving):
        return None
    return (serving.status.promoted_at or state.now) + state.settings.drain


def _served(enclave: Enclave) -> bool:
    """Return whether an Enclave served and still could."""
    return enclave.status.promoted_at is not None and not has_failed(enclave)


def ssh_enclave(state: RolloutState, plan: RolloutPlan) -> str:
    """Return the name of the Enclave that people log in to; empty if there is none.

    It is the one that serves, else the newest that is starting, so that a start that fails can be
    inspected meanwhile.
    """
    if state.observed.organization is None:
        return ""
    starting = [
        each for each in state.enclaves if each.metadata.name in plan.keep and not has_failed(each)
    ]
    enclave = state.serving_after(plan) or (starting[-1] if starting else None)
    if enclave is None or not enclave.spec.debug or not enclave.spec.ssh_keys:
        return ""
    return enclave.metadata.name


def _gets_requests(state: RolloutState, enclave: Enclave) -> bool:
    service = state.observed.service
    if service is None or has_failed(enclave):
        return False
    return service.selects == enclave.metadata.name or enclave.status.address in service.addresses


def _deployment(state: RolloutState, plan: RolloutPlan) -> Iterator[Action]:
    has_enclave = bool(plan.keep) or any(isinstance(e, CreateEnclave) for e in plan.actions)
    if has_enclave and state.observed.deployment is None:
        yield EnsureDeployment(state.wanted.repo)


def _completions(state: RolloutState, plan: RolloutPlan) -> Iterator[CreateEnclave | Need]:
    for each in state.enclaves:
        name = each.metadata.name
        if name in plan.keep and name in state.observed.incomplete and not has_failed(each):
            step = completed_attempt(state, each)
            if step is not None:
                yield step


def _missing_claims(state: RolloutState, plan: RolloutPlan) -> Iterator[ClaimHostname]:
    """Claim what serves and has no claim: released while its Domain was lost, or deleted."""
    serving = state.serving_after(plan)
    if serving is None or state.is_stopped or state.observed.organization is None:
        return
    for each in serving.spec.hostnames:
        if state.accepts(each) and each not in state.observed.claims:
            yield ClaimHostname(each)


def routed_hostnames(state: RolloutState, plan: RolloutPlan) -> Mapping[str, str]:
    """Return which host names the gateway must route to which Service.

    The serving Enclave keeps its routes while its Pod is replaced.
    """
    by_name = {each.metadata.name: each for each in state.enclaves}
    target = state.serving_after(plan) or by_name.get(plan.route) or state.active_after(plan)
    return wanted_routes(state, target, by_name.get(plan.preview))


def _routing(state: RolloutState, plan: RolloutPlan) -> Iterator[Action]:
    observed, shells = state.observed, ssh_enclave(state, plan)
    for role, known, target, over in (
        # The serving one stays while there is a Container: clients know its address.
        (ServiceRole.SERVING, observed.service, plan.route, state.is_deleting),
        (ServiceRole.PREVIEW, observed.preview, plan.preview, not plan.preview),
        (ServiceRole.SSH, observed.shells, shells, not shells),
    ):
        if target and (known is None or known.selects != target):
            yield RouteTo(role, target)
        elif over and known is not None:
            yield DeleteService(role, known.uid)
    yield from changed_routes(state, routed_hostnames(state, plan))


def _serving_records(state: RolloutState, plan: RolloutPlan) -> Iterator[Action]:
    """Record who serves and who no longer does; `_routing` goes before."""
    serving = state.serving_after(plan)
    for each in state.all_enclaves:
        status = each.status
        if each is serving or status.promoted_at is None or status.demoted_at is not None:
            continue
        if not _is_selected(state, plan, each):
            yield RecordDemoted(each.metadata.name, state.now)
    if serving is None or not state.routes_to(serving):
        return
    # An earlier release recorded only promotedAt.
    if not serving.status.serving and serving.status.demoted_at is None:
        yield RecordServing(serving.metadata.name, serving.status.promoted_at or state.now)


def _is_selected(state: RolloutState, plan: RolloutPlan, enclave: Enclave) -> bool:
    """Return whether requests reach an Enclave under a plan, also one that is being deleted."""
    name, service = enclave.metadata.name, state.observed.service
    if has_failed(enclave) or name not in state.observed.pods or service is None:
        return False
    return not state.is_deleting and (plan.route or service.selects) == name


def _needed_hostnames(state: RolloutState, plan: RolloutPlan) -> frozenset[str]:
    """Return host names of spec and of every Enclave that has a Pod or may still get one."""
    needed = set() if plan.frees_hostnames else set(state.hostnames)
    for each in state.all_enclaves:
        if each.metadata.name in state.observed.pods or each.metadata.name in plan.keep:
            needed.update(host for host in each.spec.hostnames if state.accepts(host))
    if state.observed.organization is None:
        # Without its Organization the names of spec are unknown: nothing is released blindly.
        needed.update(state.observed.claims)
    return frozenset(needed)


def unneeded_claims(
    container: Container, claims: Mapping[str, HostnameClaim], needed: Iterable[str]
) -> tuple[ReleaseHostname, ...]:
    """Return which claims of a Container must be released.

    Parameters
    ----------
    claims
        Claims by host name (`Observed.claims`).
    needed
        Host names of spec and of every Enclave that has a Pod or will have one.
    """
    kept = frozenset(needed)
    return tuple(
        _release(claim)
        for hostname, claim in sorted(claims.items())
        if hostname not in kept
        and claim.metadata.uid
        and is_held_by(claim, container)
        and claim.metadata.deletion_timestamp is None
    )


def _release(claim: HostnameClaim) -> ReleaseHostname:
    return ReleaseHostname(
        hostname=claim.metadata.name,
        uid=claim.metadata.uid,
        resource_version=claim.metadata.resource_version,
    )
