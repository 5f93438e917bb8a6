"""Which Host a request runs on, what it lacks there, and how confidential the enclave is."""

from collections.abc import Iterable, Iterator

from cloister_crds.config.model import ServiceConfig
from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.kinds.enclave import EnclaveStatus
from cloister_crds.kinds.host import TEE, Host, HostSpec, NetworkIsolation, TEEUnit
from cloister_crds.kinds.meta import Condition, ConditionStatus
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, condition
from cloister_crds.measurement.initdata import PUBLISHED_RULES
from cloister_crds.problems import Problem

__all__ = [
    "confidentiality_conditions",
    "find_host",
    "host_conditions",
    "maps_users",
    "not_ready_condition",
    "pick_host",
    "profile",
    "tee_problems",
    "unenforced_fields",
]


def confidentiality_conditions(
    host: Host, *, debug: bool, without_tee: bool, active: EnclaveStatus | None
) -> tuple[ConditionUpdate, ...]:
    """Return the conditions of whether an enclave is confidential and its secrets are sealed.

    Parameters
    ----------
    active
        Status of the enclave that serves; None if none does.
    """
    name, spec = host.metadata.name, host.spec
    # Nothing about secrets is reported here: without a TEE nobody expects them to be sealed.
    if spec.tee is TEE.NONE:
        text = (
            f"Host {name} has no trusted execution environment: the node's operator can read "
            "what runs here."
        )
        return (_not_confidential("NoTee", text),)
    sealed = ConditionUpdate(
        "SecretsSealed",
        status=False,
        reason="SecretsInCluster",
        message="Secret values come from core Secrets: the cluster's API server, its storage and "
        "the node see them before the enclave does.",
    )
    if without_tee:
        text = f"The request switched {spec.tee} of Host {name} off; leave disableConfidential out."
        return (_not_confidential("TeeSwitchedOff", text),)
    if debug:
        text = (
            "A debug enclave permits logins; it has an identity of its own, which clients refuse."
        )
        return _not_confidential("DebugEnclave", text), sealed
    return _evidence(host, active), sealed


def _evidence(host: Host, active: EnclaveStatus | None) -> ConditionUpdate:
    """Return the condition as far as evidence decides about it."""
    tee = host.spec.tee
    if active is None or active.ready_at is None or not active.measurement:
        text = f"Its machine has given no evidence of {tee} yet."
        return _not_confidential("NotAttested", text)
    if host.spec.tee_unit is TEEUnit.NODE:
        text = (
            f"Its node gave evidence of {tee}, which measures no single enclave: the operator of "
            "the cluster may start other programs there. Use a Host with teeUnit Pod."
        )
        return _not_confidential("NodeAttested", text)
    runtime = PUBLISHED_RULES.get(active.guest_rules)
    if runtime is None:
        text = _unknown_rules(host.metadata.name, active.guest_rules)
        return _not_confidential("NoGuestPolicy", text)
    text = (
        f"Its machine gave evidence of {tee} and of the published initdata, and its agent judges "
        f"the host by the rules of this release for {runtime}. Relying parties verify the evidence "
        "at the enclave itself."
    )
    return ConditionUpdate("Confidential", status=True, reason="Attested", message=text)


def _unknown_rules(host: str, digest: str) -> str:
    """Return why rules are not those of this release, and what to do."""
    found = f"Rules with the digest {digest}" if digest else "No rules known to this release"
    return (
        f"{found} judge what the node's operator requests of the machine: it may start other "
        f"programs there. Leave policy.rego out of spec.initdata of Host {host}, and relaunch an "
        "enclave of an earlier release."
    )


def tee_problems(spec: ContainerSpec, host: Host) -> Iterator[Problem]:
    """Yield a problem if a request disables a TEE that cannot be disabled."""
    if spec.disable_confidential and host.spec.tee_unit is TEEUnit.NODE:
        yield Problem(
            "spec.disableConfidential",
            "TeeOfTheNode",
            f"On Host {host.metadata.name} the nodes are the confidential machines, so "
            f"{host.spec.tee} cannot be switched off for one enclave; leave "
            "spec.disableConfidential out, or name a Host without TEE.",
        )


def _not_confidential(reason: str, message: str) -> ConditionUpdate:
    return ConditionUpdate("Confidential", status=False, reason=reason, message=message)


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
        spec.host; None means the default Host, of several the first by name.

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
    """Return the condition because of which a Host cannot be used now; None if it can.

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
    config
        The parsed file.
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
    unenforced
        Fields of the file that are not enforced.
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
