"""Builders of valid objects; a test passes only the fields that matter to it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from cloister_crds.config.model import ContainerConfig as FileContainer
from cloister_crds.config.model import ServiceConfig, Shim
from cloister_crds.kinds.container import Container, ContainerSpec, ContainerStatus
from cloister_crds.kinds.deployment import Deployment, DeploymentSpec
from cloister_crds.kinds.domain import Domain, DomainSpec, DomainStatus
from cloister_crds.kinds.enclave import (
    Enclave,
    EnclavePhase,
    EnclaveSpec,
    EnclaveStatus,
    EnclaveSummary,
    OwningContainer,
)
from cloister_crds.kinds.host import TEE, Host, HostSpec, NetworkIsolation, TEEUnit
from cloister_crds.kinds.hostnameclaim import ClaimHolder, HostnameClaim, HostnameClaimSpec
from cloister_crds.kinds.meta import Condition, ObjectMeta
from cloister_crds.kinds.organization import Billing, Organization, OrganizationSpec
from cloister_crds.kinds.secret import Secret, SecretRef, SecretSpec
from cloister_crds.lifecycle import request as requests
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from cloister_crds.lifecycle.state.observed import (
    DecisionSettings,
    Observed,
    RegistryImage,
    ReleaseFacts,
)
from cloister_crds.names import enclave_name

__all__ = [
    "COMMIT",
    "CONFIDENTIAL",
    "DOMAIN",
    "IMAGE",
    "NAMESPACE",
    "NOW",
    "SETTINGS",
    "claim_of",
    "container_of",
    "deployment_of",
    "domain_of",
    "enclave_of",
    "file_of",
    "host_of",
    "image_of",
    "observed_of",
    "organization_of",
    "release_of",
    "secret_of",
    "subspec",
]

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
"""Current time of the tests."""
NAMESPACE = "acme-ns"
"""Namespace of the organization ``acme``."""
DOMAIN = "containers.example.test"
"""Domain of generated host names."""
IMAGE = "registry.example.test/web@sha256:" + "a" * 64
"""Image of the configuration file."""
COMMIT = "1" * 40
"""Commit of the release."""
SETTINGS = DecisionSettings(containers_domain=DOMAIN)
"""Settings with their defaults."""


def organization_of(*, subscribed: bool = True, **spec: Any) -> Organization:
    """Build the organization ``acme``; it has a subscription."""
    given = {"billing": Billing(container_subscription=subscribed), **spec}
    return Organization(
        metadata=ObjectMeta(name="acme", uid="org-1", generation=1),
        spec=OrganizationSpec(namespace=NAMESPACE, **given),
    )


CONFIDENTIAL: dict[str, Any] = {
    "tee": TEE.SNP,
    "tee_unit": TEEUnit.POD,
    "runtime_class_name": "kata-qemu-snp",
}
"""Settings of a Host whose enclaves are confidential machines."""


def host_of(name: str = "plain", **spec: Any) -> Host:
    """Build a Host that can be used today: no TEE, one network for each enclave, the default."""
    given = {"network_isolation": NetworkIsolation.POD, "default": True, **spec}
    return Host(
        metadata=ObjectMeta(name=name, uid=f"host-{name}", generation=1), spec=HostSpec(**given)
    )


def container_of(
    name: str = "web",
    *,
    generation: int = 1,
    uid: str = "ctr-1",
    status: ContainerStatus | None = None,
    annotations: Mapping[str, str] | None = None,
    deleted: bool = False,
    **spec: Any,
) -> Container:
    """Build a Container of ``acme/site`` at v1.0.0."""
    # An object name of the facade, such as web.debug.2, cannot be part of a host name.
    displayed = name.partition(".")[0] if "." in name else None
    given = {"name": displayed, "repo": "acme/site", "tag": "v1.0.0", **spec}
    return Container(
        metadata=ObjectMeta(
            name=name,
            namespace=NAMESPACE,
            uid=uid,
            generation=generation,
            resource_version="1",
            creation_timestamp=NOW - timedelta(minutes=1),
            deletion_timestamp=NOW if deleted else None,
            annotations=dict(annotations or {}),
        ),
        spec=ContainerSpec(**given),
        status=status or ContainerStatus(),
    )


def subspec(container: Container, *, bump: bool = True, **spec: Any) -> Container:
    """Return the Container with changed fields of spec; its generation grows with them."""
    metadata = container.metadata
    if bump:
        metadata = metadata.model_copy(update={"generation": metadata.generation + 1})
    return container.model_copy(
        update={"spec": container.spec.model_copy(update=spec), "metadata": metadata}
    )


def domain_of(host: str, *, verified: bool = True, lost_at: datetime | None = None) -> Domain:
    """Build the Domain of a host name, with the status that the operator writes."""
    unverified = "DomainLost" if lost_at else "DomainNotVerified"
    reason = "DomainVerified" if verified else unverified
    ready = ConditionUpdate("Ready", status=verified, reason=reason, message=f"{host} says so.")
    return Domain(
        metadata=ObjectMeta(name="domain", namespace=NAMESPACE, uid="domain-1", generation=1),
        spec=DomainSpec(domain=host),
        status=DomainStatus(
            verified=verified, lost_at=lost_at, conditions=merge((), [ready], generation=1, now=NOW)
        ),
    )


def observed_of(container: Container, **fields: Any) -> Observed:
    """Build the observed state of a reconcile without problems and without lookups."""
    given = {
        "container": container,
        "settings": SETTINGS,
        "organization": organization_of(),
        "hosts": (host_of(),),
        "rank": 0,
        **fields,
    }
    return Observed(**given)


def enclave_of(
    container: Container,
    *,
    attempt: int = 1,
    phase: EnclavePhase | None = EnclavePhase.READY,
    reason: str = "",
    message: str = "",
    at: datetime = NOW - timedelta(seconds=30),
    failed_at: datetime = NOW,
    promoted: bool = False,
    deleting: bool = False,
    losses: int = 0,
    generation: int = 1,
    address: str = "10.0.0.1",
    ready_at: datetime | None = None,
    **spec: Any,
) -> Enclave:
    """Build an attempt of the Container's current request, ready by default."""
    request = requests.record(container.spec)
    revision = requests.revision(request, generation)
    name = enclave_name(container.metadata.name, revision, attempt)
    given: dict[str, Any] = {
        "container": OwningContainer(name=container.metadata.name, uid=container.metadata.uid),
        "request": request,
        "revision": revision,
        "attempt": attempt,
        "losses": losses,
        "repo": request.repo,
        "tag": request.tag,
        "commit": COMMIT,
        "config_digest": release_of().digest,
        "config_file": "service-config.yml",
        "summary": EnclaveSummary(cpus=2, memory_mb=8192, containers=("web",), upstream="web"),
        "host": "plain",
        "hostnames": (f"web.acme.{DOMAIN}",),
        **spec,
    }
    return Enclave(
        metadata=ObjectMeta(
            name=name,
            namespace=NAMESPACE,
            uid=f"uid-{name}",
            resource_version="7",
            generation=1,
            creation_timestamp=at,
            deletion_timestamp=NOW if deleting else None,
        ),
        spec=EnclaveSpec(**given),
        status=EnclaveStatus(
            phase=phase,
            reason=reason,
            message=message,
            address=address,
            pod_uid=f"pod-{name}" if phase is not None else "",
            ready_at=ready_at or (at if phase is EnclavePhase.READY else None),
            serving=promoted,
            promoted_at=at if promoted else None,
            conditions=_conditions(phase, reason, message, failed_at),
        ),
    )


def _conditions(
    phase: EnclavePhase | None, reason: str, message: str, failed_at: datetime
) -> tuple[Condition, ...]:
    findings = [ConditionUpdate("Ready", phase is EnclavePhase.READY, reason or "Healthy", message)]
    if phase is EnclavePhase.FAILED:
        why = reason or "BootFailed"
        findings.append(ConditionUpdate("Stalled", status=True, reason=why, message=message))
    return merge((), findings, generation=1, now=failed_at)


def file_of(*containers: FileContainer, **fields: Any) -> ServiceConfig:
    """Build a configuration file with one container ``web`` on port 8080."""
    own = containers or (FileContainer(name="web", image=IMAGE),)
    given: dict[str, Any] = {
        "cvm_version": "0.9.0",
        "cpus": 2,
        "memory": 8192,
        "containers": own,
        "shim": Shim(upstream_port=8080, paths=("/*",), upstream_container=own[0].name),
        **fields,
    }
    return ServiceConfig(**given)


def release_of(config: ServiceConfig | None = None, **fields: Any) -> ReleaseFacts:
    """Build the release v1.0.0 with that file."""
    raw = f"# {fields.get('tag', 'v1.0.0')}\n".encode()
    given: dict[str, Any] = {
        "repo": "acme/site",
        "tag": "v1.0.0",
        "commit": COMMIT,
        "published": NOW - timedelta(days=1),
        "file_name": "service-config.yml",
        "raw": raw,
        "digest": "sha256:" + sha256(raw).hexdigest(),
        "config": config or file_of(),
        **fields,
    }
    return ReleaseFacts(**given)


def image_of(image: str = IMAGE) -> RegistryImage:
    """Build a registry's lookup result for an image."""
    return RegistryImage(image=image, cmd=("/serve",))


def claim_of(hostname: str, holder: str = "web", *, deleting: bool = False) -> HostnameClaim:
    """Build the claim of a host name by a Container of the organization."""
    return HostnameClaim(
        metadata=ObjectMeta(
            name=hostname,
            uid=f"claim-{hostname}",
            resource_version="3",
            deletion_timestamp=NOW if deleting else None,
        ),
        spec=HostnameClaimSpec(holder=ClaimHolder(namespace=NAMESPACE, name=holder)),
    )


def deployment_of(repo: str = "acme/site", *, default_staging: bool = False) -> Deployment:
    """Build the Deployment of a repository."""
    return Deployment(
        metadata=ObjectMeta(name="r-acme-site", namespace=NAMESPACE, uid="cdep-1"),
        spec=DeploymentSpec(repo=repo, default_staging=default_staging),
    )


def secret_of(name: str, *, repo: str | None = None) -> Secret:
    """Build a csec whose value lies in a core Secret ``core-<name>``."""
    core = f"core-{name.lower().replace('_', '-')}"
    return Secret(
        metadata=ObjectMeta(name=core, namespace=NAMESPACE, uid=f"csec-{core}"),
        spec=SecretSpec(name=name, repo=repo, secret_ref=SecretRef(name=core)),
    )
