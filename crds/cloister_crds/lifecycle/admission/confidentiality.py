"""The confidentiality of an enclave: what the evidence supports, and no more.

A Host's profile proves nothing by itself. With a TEE, the enclave's own agent fails the boot unless
the machine gives evidence of it; so an enclave that was ready had evidence. Relying parties verify
that evidence; the condition is for the administrator (docs/measurement.md).
"""

from collections.abc import Iterator

from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.kinds.enclave import EnclaveStatus
from cloister_crds.kinds.host import TEE, Host, TEEUnit
from cloister_crds.lifecycle.state.conditions import ConditionUpdate
from cloister_crds.measurement.guest_rules import PUBLISHED_RULES
from cloister_crds.problems import Problem

__all__ = ["confidentiality_conditions", "tee_problems"]


def confidentiality_conditions(
    host: Host, *, debug: bool, without_tee: bool, active: EnclaveStatus | None
) -> tuple[ConditionUpdate, ...]:
    """Return the conditions of whether an enclave is confidential and its secrets are sealed.

    Parameters
    ----------
    host
        The Host that it runs on.
    debug
        Whether it is a debug enclave.
    without_tee
        Whether the request switched the TEE off.
    active
        Status of the enclave that serves; None = none does.
    """
    name, spec = host.metadata.name, host.spec
    if spec.tee is TEE.NONE:
        text = (
            f"Host {name} has no trusted execution environment: whoever runs the node can read "
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
            f"Its node gave evidence of {tee}, which measures no single enclave: whoever runs the "
            "cluster may start other programs there. Use a Host with teeUnit Pod."
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
        f"{found} judge what whoever runs the node requests of the machine: it may start other "
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
