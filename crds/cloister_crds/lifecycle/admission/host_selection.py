"""Host selection: which Host a request runs on, and what that Host cannot give it."""

from collections.abc import Iterable

from cloister_crds.config.model import ServiceConfig
from cloister_crds.kinds.host import TEE, Host, HostSpec, NetworkIsolation
from cloister_crds.kinds.meta import Condition, ConditionStatus
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, condition

__all__ = [
    "find_host",
    "host_conditions",
    "maps_users",
    "not_ready_condition",
    "pick_host",
    "profile",
    "unenforced_fields",
]

_MOST = 64
"""Most entries that the status of a Container has room for."""


def find_host(name: str, hosts: Iterable[Host]) -> Host | None:
    """Return the Host of a name."""
    return next((each for each in hosts if each.metadata.name == name), None)


def pick_host(named: str | None, hosts: Iterable[Host]) -> Host | None:
    """Return the Host that a request runs on.

    Parameters
    ----------
    named
        spec.host; None = the default Host, of several the first by name.
    hosts
        All Hosts.

    Returns
    -------
    Host | None
        None when there is no such Host.
    """
    everything = sorted(hosts, key=lambda each: each.metadata.name)
    if named is not None:
        return find_host(named, everything)
    return next((each for each in everything if each.spec.default), None)


def profile(spec: HostSpec, *, without_tee: bool) -> HostSpec:
    """Return a Host's spec as it counts for one enclave.

    Parameters
    ----------
    spec
        Spec of the Host.
    without_tee
        Whether the request switched the TEE off (disableConfidential, debug only).

    Returns
    -------
    HostSpec
        The spec itself, or one of a Host of the same nodes without TEE, where the Pod is an
        ordinary one: runtime class and initdata have no meaning there.
    """
    if not without_tee or spec.tee is TEE.NONE:
        return spec
    return spec.model_copy(
        update={
            "tee": TEE.NONE,
            "tee_unit": None,
            "runtime_class_name": None,
            "initdata": (),
            "attestation_service": None,
        }
    )


def maps_users(spec: HostSpec) -> bool:
    """Return whether Pods on a Host have a user namespace of their own.

    Without one the launcher has the node's privileges for a moment: the administrator has allowed
    that, or the node is the Pod's own machine, whose runtime has no user namespaces.

    Parameters
    ----------
    spec
        Spec of the Host as it counts for the enclave (`profile`).
    """
    return not spec.allow_privileged_launcher and not spec.starts_machines


def not_ready_condition(host: Host) -> Condition | None:
    """Return the condition because of which a Host cannot be used now; None = it can.

    A Host without a condition ``Ready`` was not reconciled yet and counts as usable.
    """
    ready = condition(host.status.conditions, "Ready")
    return ready if ready is not None and ready.status is ConditionStatus.FALSE else None


def unenforced_fields(
    host: Host, config: ServiceConfig, unenforced: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the fields of a file that are not enforced on a Host.

    Parameters
    ----------
    host
        The Host.
    config
        The parsed file.
    unenforced
        Fields that no enclave enforces.
    """
    own = []
    if config.networks and host.spec.network_isolation is not NetworkIsolation.CONTAINER:
        own.append("networks")
    if not maps_users(host.spec):
        # The kernel counts processes by user and user namespace, which is the node's here.
        own.append("pids_limit")
    return (*unenforced[: _MOST - len(own)], *own)


def host_conditions(
    host: Host, unenforced: tuple[str, ...], *, containers: int
) -> tuple[ConditionUpdate, ...]:
    """Return the conditions of a Container about its Host, except those about confidentiality.

    Parameters
    ----------
    host
        The Host.
    unenforced
        Fields of the file that are not enforced.
    containers
        How many containers the file has.
    """
    found = []
    if host.spec.network_isolation is NetworkIsolation.POD:
        shared = "The shim and the container share" if containers == 1 else "All containers share"
        text = (
            f"{shared} one network namespace on Host {host.metadata.name}; networks and egress "
            "rules of the file are not enforced."
        )
        found.append(
            ConditionUpdate("NetworkIsolated", status=False, reason="SharedNetwork", message=text)
        )
    else:
        text = (
            "Each container reaches only what its networks in the file allow (files older than "
            "version 0.10: all containers share one network that reaches public addresses)."
        )
        found.append(
            ConditionUpdate("NetworkIsolated", status=True, reason="OwnNetworks", message=text)
        )
    if unenforced:
        text = f"Not enforced on Host {host.metadata.name}: {', '.join(unenforced)}."
        found.append(ConditionUpdate("Unenforced", status=True, reason="HostCannot", message=text))
    return tuple(found)
