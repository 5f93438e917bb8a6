"""Which Host a request runs on, and what that Host means for it."""

from collections.abc import Iterable

from cloister_crds.config.model import ServiceConfig
from cloister_crds.kinds.host import TEE, Host, HostSpec, NetworkIsolation, TEEUnit
from cloister_crds.kinds.meta import Condition, ConditionStatus
from cloister_crds.lifecycle.state.conditions import Finding, condition

__all__ = [
    "findings",
    "host_named",
    "maps_users",
    "pick_host",
    "profile",
    "trouble",
    "unenforced_on",
]

_MOST = 64
"""Most entries that the status of a Container has room for."""


def host_named(name: str, hosts: Iterable[Host]) -> Host | None:
    """Answer the Host of a name.

    Parameters
    ----------
    name
        metadata.name of the Host.
    hosts
        All Hosts.
    """
    return next((each for each in hosts if each.metadata.name == name), None)


def pick_host(named: str | None, hosts: Iterable[Host]) -> Host | None:
    """Answer the Host that a request runs on.

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
        return host_named(named, everything)
    return next((each for each in everything if each.spec.default), None)


def profile(spec: HostSpec, *, without_tee: bool) -> HostSpec:
    """Answer a Host's spec as it counts for one enclave.

    Parameters
    ----------
    spec
        Spec of the Host.
    without_tee
        Whether the request switched the TEE off (disableConfidential, debug only).

    Returns
    -------
    HostSpec
        The spec itself, or one of a Host of the same nodes without TEE. There the Pod is an
        ordinary one: neither the runtime class nor what the guest of a machine is given has a
        meaning.
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
    """Tell whether Pods on a Host have a user namespace of their own.

    Without one the launcher's rights are the node's for a moment: the administrator has allowed
    that, or the node is the Pod's own machine, whose runtime knows no user namespaces.

    Parameters
    ----------
    spec
        Spec of the Host as it counts for the enclave (`profile`).
    """
    return not spec.allow_privileged_launcher and spec.tee_unit is not TEEUnit.POD


def trouble(host: Host) -> Condition | None:
    """Answer the condition that says why a Host cannot be used now.

    Parameters
    ----------
    host
        The Host; one without a condition ``Ready`` was not looked at yet and is taken as usable.
    """
    ready = condition(host.status.conditions, "Ready")
    return ready if ready is not None and ready.status is ConditionStatus.FALSE else None


def unenforced_on(
    host: Host, config: ServiceConfig, unenforced: tuple[str, ...]
) -> tuple[str, ...]:
    """Answer what of a file is not enforced on a Host.

    Parameters
    ----------
    host
        The Host.
    config
        The parsed file.
    unenforced
        Fields that no enclave enforces.
    """
    isolated = host.spec.network_isolation is NetworkIsolation.CONTAINER
    if isolated or not config.networks:
        return unenforced
    return (*unenforced[: _MOST - 1], "networks")


def findings(host: Host, unenforced: tuple[str, ...], *, containers: int) -> tuple[Finding, ...]:
    """Say what a Host cannot give but confidentiality, as conditions of a Container.

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
        found.append(Finding("NetworkIsolated", status=False, reason="SharedNetwork", message=text))
    else:
        text = (
            "Each container reaches only what its networks in the file allow (files older than "
            "version 0.10: all containers share one network that lets out to public addresses)."
        )
        found.append(Finding("NetworkIsolated", status=True, reason="OwnNetworks", message=text))
    if unenforced:
        text = f"Not enforced on Host {host.metadata.name}: {', '.join(unenforced)}."
        found.append(Finding("Unenforced", status=True, reason="HostCannot", message=text))
    return tuple(found)
