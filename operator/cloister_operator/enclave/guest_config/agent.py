"""The agent of an enclave: the sidecar that supervises the boot, and its document.

The document's fields are those of the guest's package `agent`; docs/enclave.md describes it.
"""

from datetime import timedelta
from typing import Any

from cloister_crds.config import ContainerConfig, ServiceConfig, metrics_secret
from cloister_crds.config.effective import health_allowance, silence_allowance
from cloister_crds.kinds.host import TEE
from cloister_operator.enclave import paths
from cloister_operator.enclave.container import READY_PATH, agent_probe
from cloister_operator.enclave.guest_config.certificate import is_signed
from cloister_operator.enclave.guest_config.measurement import attestation_document
from cloister_operator.enclave.network.addresses import PROBE_PORT, SHIM_PORT
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan
from cloister_operator.enclave.sidecars import (
    AGENT,
    isolates_containers,
    needs_key_gate,
    sidecar,
    sidecar_name,
    unprivileged,
)

_VERSION = 2
_MEBI = 1024 * 1024


def agent_document(plan: EnclavePlan) -> dict[str, Any]:
    """Build the agent's document.

    Returns
    -------
    dict[str, Any]
        The document of ``guest agent``.
    """
    return {
        "version": _VERSION,
        "socketDirectory": paths.REPORT,
        "directory": paths.AGENT,
        "serviceDirectory": paths.SERVICE,
        "config": f"{paths.AGENT_CONFIG}/{paths.CONFIG_KEY}",
        "keeperSocket": paths.KEEPER_SOCKET,
        "shim": f"127.0.0.1:{SHIM_PORT}",
        **({"gateSocket": paths.GATE_SOCKET} if needs_key_gate(plan.config.shim) else {}),
        **({} if plan.config.shim.ehbp is None else {"bodiesSocket": paths.BODIES_SOCKET}),
        "probes": f"0.0.0.0:{PROBE_PORT}",
        "stages": _stages(plan),
        "containers": [_container(plan, each) for each in plan.config.containers],
        "attestation": attestation_document(plan),
        "metrics": _metrics(plan),
        "terminationFile": paths.TERMINATION_LOG,
    }


def skipped_stages(plan: EnclavePlan) -> list[str]:
    """Return the stages of the boot that are skipped."""
    return sorted(name for name, rule in _stages(plan).items() if "skipped" in rule)


def agent_container(
    plan: EnclavePlan, settings: BuildSettings, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Build the sidecar. Its readiness is the enclave's."""
    return {
        **sidecar(settings, mounts),
        "name": sidecar_name(AGENT, plan.names),
        "command": ["/guest", "agent", "-spec", f"{paths.AGENT_CONFIG}/{paths.AGENT_KEY}"],
        "securityContext": unprivileged(AGENT),
        **agent_probe(READY_PATH),
    }


def _container(plan: EnclavePlan, container: ContainerConfig) -> dict[str, Any]:
    """Build the entry of one container of the file."""
    allowance = health_allowance(container.healthcheck)
    silence = silence_allowance(container.healthcheck)
    return {
        "name": container.name,
        "image": plan.facts(container).image,
        "restart": str(container.restart),
        "healthWithinMillis": _millis(allowance),
        "checkEveryMillis": _millis(silence),
    }


def _millis(time: timedelta | None) -> int:
    """Return whole milliseconds; 0 for None."""
    return 0 if time is None else time // timedelta(milliseconds=1)


def _metrics(plan: EnclavePlan) -> dict[str, Any]:
    """Build what the metrics relate to, and who may read them."""
    return {
        "cpus": plan.config.cpus,
        "memoryBytes": plan.config.memory * _MEBI,
        "tokenFile": f"{paths.METRICS}/token" if metrics_secret(plan.secrets) else "",
    }


def _stages(plan: EnclavePlan) -> dict[str, dict[str, Any]]:
    """Return how the agent detects the end of each stage that it does not see itself."""
    config = plan.config
    has_tee = plan.host.spec.tee is not TEE.NONE
    signed = is_signed(plan)
    evidence = {"evidence": True}
    network: dict[str, Any] = {"network": paths.NETWORK_STATUS_FILE}
    if not isolates_containers(plan.host):
        network = _skipped("The containers share the network of the Pod.")
    return {
        "network": network,
        "firewall": network,
        "identity": {"file": paths.FINGERPRINT_FILE}
        if signed
        else _skipped("The shim makes its key itself."),
        "certificate": {"file": paths.CHAIN_FILE}
        if signed
        else _skipped("The shim makes its certificate itself."),
        "cpu-attestation": evidence
        if has_tee
        else _skipped("There is no trusted execution environment: nothing is confidential."),
        "gpu-attestation": evidence
        if has_tee and plan.enclave.spec.summary.gpus
        else _skipped("The enclave has no confidential graphics processor."),
        "secrets": _launched(_with_secrets(config), "The file names no secret."),
        "registry-auth": _skipped("Images are pulled outside the enclave, by their digests."),
        "models": {"models": paths.MODELS_STATUS_FILE}
        if config.models
        else _skipped("The file names no model."),
    }


def _with_secrets(config: ServiceConfig) -> list[str]:
    """Return the containers that have secrets: the runtime starts them with only these."""
    return [each.name for each in config.containers if each.secrets]


def _launched(containers: list[str], reason: str) -> dict[str, Any]:
    """Return a stage that ends when containers are launched; skipped when there are none."""
    return {"launched": containers} if containers else _skipped(reason)


def _skipped(reason: str) -> dict[str, Any]:
    """Return a stage that is skipped."""
    return {"skipped": reason}
