"""The confidentiality of an enclave: what the evidence supports, and no more.

A Host's profile proves nothing by itself. With a TEE, the enclave's own agent fails the boot unless
the machine gives evidence of it; so an enclave that was ready had evidence. Relying parties verify
that evidence; the condition is for the administrator (docs/measurement.md).
"""

from collections.abc import Iterator

from cloister_crds.config.model import ServiceConfig, TlsMode
from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.kinds.host import TEE, Host, TEEUnit
from cloister_crds.lifecycle.state.conditions import ConditionUpdate
from cloister_crds.measurement.enclave import POLICY_FILE
from cloister_crds.problems import Problem

__all__ = ["confidentiality_conditions", "key_problems", "tee_problems"]


def confidentiality_conditions(
    host: Host, *, debug: bool, without_tee: bool, was_ready: bool
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
    was_ready
        Whether it was ever ready.
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
    if spec.tee_unit is TEEUnit.POD and all(each.name != POLICY_FILE for each in spec.initdata):
        text = (
            f"The initdata of Host {name} has no {POLICY_FILE}: whoever runs the node may start "
            "other programs in the machine. Add one to spec.initdata of the Host."
        )
        return _not_confidential("NoGuestPolicy", text), sealed
    if not was_ready:
        text = f"Its machine has given no evidence of {spec.tee} yet."
        return _not_confidential("NotAttested", text), sealed
    evidence = (
        f"Its machine gave evidence of {spec.tee} and of the published initdata"
        if spec.tee_unit is TEEUnit.POD
        else f"Its node gave evidence of {spec.tee}, which measures no single enclave"
    )
    text = f"{evidence}. Relying parties verify the evidence at the enclave itself."
    return ConditionUpdate("Confidential", status=True, reason="Attested", message=text), sealed


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


def key_problems(
    spec: ContainerSpec, host: Host | None, config: ServiceConfig | None
) -> Iterator[Problem]:
    """Yield a problem if a file keeps its TLS key out of the evidence.

    Parameters
    ----------
    spec
        Spec of the Container.
    host
        The Host that it would run on; None = not known.
    config
        The parsed file; None = not known.
    """
    if host is None or config is None:
        return
    if host.spec.tee is TEE.NONE or spec.disable_confidential:
        return
    if config.shim.tls_mode is TlsMode.SELF_SIGNED:
        yield Problem(
            "shim.tls-mode",
            "KeyNotBound",
            "shim.tls-mode: self-signed leaves the TLS key out of the evidence of Host "
            f"{host.metadata.name}, which has tee {host.spec.tee}; leave tls-mode out.",
        )


def _not_confidential(reason: str, message: str) -> ConditionUpdate:
    return ConditionUpdate("Confidential", status=False, reason=reason, message=message)
