"""From custom resources beside containers to their records in the API (client contract, section 3).

Pure: the answer follows from the objects alone.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from cloister_api.cache import CachedResource
from cloister_api.records.container import standing
from cloister_clients.clock import utc_text
from cloister_crds.kinds import Container, Deployment, Domain, RegistryCredential, Secret, SSHKey
from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.kinds.domain import DomainRecords
from cloister_crds.kinds.meta import GROUP

__all__ = [
    "VALUE_ANNOTATION",
    "deployment_record",
    "domain_record",
    "key_record",
    "registry_record",
    "secret_record",
]

VALUE_ANNOTATION = f"{GROUP}/value-updated-at"
"""When the facade last wrote the value; it also wakes the operator."""

_COUNTS = {
    ContainerPhase.READY: "ready_count",
    ContainerPhase.FAILED: "failed_count",
    ContainerPhase.STOPPED: "stopped_count",
    ContainerPhase.STOPPING: "stopped_count",
}
"""Counts of the phases; the rest is on its way."""


def written(time: datetime | None) -> str | None:
    """Write a time as the API does."""
    return utc_text(time, "seconds") if time else None


def secret_record(secret: Secret, users: tuple[str, ...]) -> dict[str, Any]:
    """Answer the record of a secret; a repository's names its repository."""
    meta = secret.metadata
    times = (
        written(meta.creation_timestamp),
        written(secret.status.value_updated_at),
        meta.annotations.get(VALUE_ANNOTATION),
    )
    answer = {
        "id": meta.identifier,
        "name": secret.spec.name,
        "created_at": times[0],
        "updated_at": max((time for time in times if time), default=None),
        "used_by": list(users),
    }
    return {**answer, "repo": secret.spec.repo} if secret.spec.repo else answer


def key_record(key: SSHKey, users: tuple[str, ...]) -> dict[str, Any]:
    """Answer the record of an SSH key."""
    return {
        "id": key.metadata.identifier,
        "name": key.metadata.name,
        "key_type": key.spec.public_key.split(" ", 1)[0],
        "created_at": written(key.metadata.creation_timestamp),
        "used_by": list(users),
    }


def domain_record(domain: Domain, users: tuple[str, ...]) -> dict[str, Any]:
    """Answer the record of a custom domain; what the operator has not told yet is empty."""
    status = domain.status
    records = status.records or DomainRecords()
    return {
        "id": domain.metadata.identifier,
        "domain": domain.spec.domain,
        "verification_nonce": records.txt_value.rpartition(":")[2],
        "cname_hash": records.cname_target.partition(".")[0],
        "verified": status.verified,
        "verified_at": written(status.verified_at),
        "created_at": written(domain.metadata.creation_timestamp),
        "used_by": list(users),
        "txt_record_host": records.txt_name,
        "txt_record_value": records.txt_value,
        "cname_target": records.cname_target,
        "cname_configured": status.cname_configured,
    }


def registry_record(credential: RegistryCredential | None) -> dict[str, Any]:
    """Answer the status of a registry's credentials; None = there are none."""
    if credential is None:
        return {"has_credentials": False, "expired": False}
    meta, status = credential.metadata, credential.status
    times = (
        written(meta.creation_timestamp),
        written(status.value_updated_at),
        meta.annotations.get(VALUE_ANNOTATION),
    )
    answer: dict[str, Any] = {
        "has_credentials": True,
        "updated_at": max((time for time in times if time), default=None),
        "expired": status.expired,
    }
    return {**answer, "username": status.username} if status.username else answer


def deployment_record(
    held: CachedResource[Deployment], containers: Iterable[Container]
) -> dict[str, Any]:
    """Answer the record of a deployment, with the counts of its containers.

    Parameters
    ----------
    held
        The Deployment.
    containers
        All Containers of the organization that are not on their way out.
    """
    deployment = held.value
    own = [each for each in containers if each.spec.repo == deployment.spec.repo]
    counts = dict.fromkeys(("ready_count", "failed_count", "stopped_count", "deploying_count"), 0)
    for each in own:
        counts[_COUNTS.get(standing(each).phase, "deploying_count")] += 1
    return {
        "id": deployment.metadata.identifier,
        "repo": deployment.spec.repo,
        "default_staging": deployment.spec.default_staging,
        "created_at": written(deployment.metadata.creation_timestamp),
        "updated_at": held.updated_at,
        "instance_count": len(own),
        **counts,
    }
