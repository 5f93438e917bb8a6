"""Taking over from another Container: `spec.replaces`.

The other one serves until this one is ready; its host names and its place under the limit
pass over, then it ends and waits to be deleted. It must be older: a Container that gets the name of
one that was replaced long ago is nobody's predecessor.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from cloister_crds.kinds.container import Container, ContainerPhase
from cloister_crds.lifecycle.names.hostnames import is_held_by
from cloister_crds.lifecycle.rollout_state import RolloutState, enclave_names
from cloister_crds.lifecycle.state.conditions import condition
from cloister_crds.lifecycle.state.decision import ClaimHostname, TransferHostname
from cloister_crds.lifecycle.state.rollout_plan import RolloutPlan

__all__ = [
    "has_taken_over",
    "hostnames_transfer_to_the_ready_replacement",
    "inherits_hostnames",
    "predecessor",
    "replaced_container_deletes_its_enclaves",
    "successor",
]

_LAST = datetime.max.replace(tzinfo=UTC)
"""Creation of what the server has not given a time yet."""


def predecessor(container: Container, containers: Iterable[Container]) -> Container | None:
    """Return the Container that another one takes over from.

    Returns
    -------
    Container | None
        None when it names none, that one is gone or younger, or the two are part of a
        circle.
    """
    if container.spec.replaces is None:
        return None
    by_name = {each.metadata.name: each for each in containers}
    found = _older(container, by_name)
    passed = {container.metadata.name}
    link = found
    while link is not None:
        if link.metadata.name in passed:
            return None
        passed.add(link.metadata.name)
        link = _older(link, by_name)
    return found


def _older(container: Container, by_name: Mapping[str, Container]) -> Container | None:
    """Return the Container that ``spec.replaces`` enclave_names, if it is no younger.

    Both may stand in one manifest file, so that they were created in the same second.
    """
    found = by_name.get(container.spec.replaces or "")
    return found if found is not None and _created(found) <= _created(container) else None


def _created(container: Container) -> datetime:
    return container.metadata.creation_timestamp or _LAST


def successor(container: Container, containers: Iterable[Container]) -> Container | None:
    """Return the Container that takes over from another one.

    Returns
    -------
    Container | None
        Of several one that has taken over, else the oldest; None when there is none.
    """
    everything = tuple(containers)
    name, uid = container.metadata.name, container.metadata.uid
    heirs = [
        each
        for each in everything
        if each.spec.replaces == name
        and each.metadata.deletion_timestamp is None
        and (old := predecessor(each, everything)) is not None
        and old.metadata.uid == uid
    ]
    return min(
        heirs,
        key=lambda each: (not has_taken_over(each), _created(each), each.metadata.uid),
        default=None,
    )


def has_taken_over(container: Container) -> bool:
    """Return whether a Container serves or has served, so that nothing is left to replace."""
    status = container.status
    return bool(status.active_enclave) or any(each.outcome == "Served" for each in status.history)


def inherits_hostnames(container: Container, containers: Iterable[Container]) -> bool:
    """Return whether host enclave_names that ``spec.replaces`` holds are to pass to a Container.

    Returns
    -------
    bool
        True also when the other one is gone and its names were not given back yet; False
        when a younger Container has got its name.
    """
    everything = tuple(containers)
    if container.spec.replaces is None:
        return False
    gone = all(each.metadata.name != container.spec.replaces for each in everything)
    return gone or predecessor(container, everything) is not None


def replaced_container_deletes_its_enclaves(state: RolloutState) -> RolloutPlan | None:
    """End everything once another Container has taken over; somebody is to delete this one.

    That it was replaced stays so while the successor exists, also when that one is stopped.
    """
    new = state.observed.successor
    if new is None:
        return None
    ready = condition(state.status.conditions, "Ready")
    was_replaced = ready is not None and ready.reason == "Replaced"
    if not (was_replaced or has_taken_over(new)):
        return None
    text = f"Container {new.metadata.name} has taken over from this one"
    until = _drained_at(state, new)
    if state.serving is not None and state.now < until:
        return RolloutPlan(
            progress=ContainerPhase.STOPPING,
            reason="Replaced",
            message=f"{text}, which gives way slowly.",
            keep=enclave_names(state.serving),
            retry_at=until,
        )
    if state.enclaves or enclave_names(*state.all_enclaves) & state.observed.pods:
        return RolloutPlan(
            progress=ContainerPhase.STOPPING,
            reason="Replaced",
            message=f"{text}; its enclaves are ending.",
            active="",
        )
    return RolloutPlan(
        progress=ContainerPhase.STOPPED,
        reason="Replaced",
        message=f"{text}; delete this one.",
        stalled=True,
        active="",
        frees_hostnames=True,
    )


def _drained_at(state: RolloutState, new: Container) -> datetime:
    """Return when everybody has learned that requests go to the successor."""
    available = condition(new.status.conditions, "Available")
    return available.last_transition_time + state.settings.drain if available else state.now


def hostnames_transfer_to_the_ready_replacement(state: RolloutState) -> RolloutPlan | None:
    """Transfer the host names of the Container that is replaced before the ready one serves."""
    ready = state.wanted_attempts.ready
    if ready is None or state.container.spec.replaces is None or state.serving is not None:
        return None
    claims = state.observed.claims
    missing = [
        each
        for each in state.hostnames
        if each not in claims or not is_held_by(claims[each], state.container)
    ]
    if not missing or not state.routes_to(ready):
        return None
    keep = enclave_names(ready, state.active, state.last_failure)
    taken = [each for each in missing if each in claims and not state.inherits_hostname(each)]
    if taken:
        return RolloutPlan(
            progress=ContainerPhase.FAILED,
            reason="HostnameTaken",
            message=f"The host name {taken[0]} is held by another container; delete that one: "
            "this one then goes on by itself.",
            stalled=True,
            keep=keep,
            retry_at=state.now + state.settings.taken_recheck,
        )
    return RolloutPlan(
        progress=ContainerPhase.STARTED,
        reason="Routing",
        message=f"Tag {ready.spec.tag} is ready; it takes over the host enclave_names of "
        f"{state.container.spec.replaces}.",
        candidate=ready.metadata.name,
        keep=keep,
        actions=tuple(
            TransferHostname(
                hostname=each,
                resource_version=claims[each].metadata.resource_version,
            )
            if each in claims
            else ClaimHostname(each)
            for each in missing
        ),
    )
