"""Times and GitOps managers of objects, as the API reports them."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

from cloister_api.cache import CachedResource
from cloister_api.ledger.audit import COMMAND_LINE, AuditRow
from cloister_api.ledger.keys.admin_keys import AdminKey
from cloister_api.records.container import created_at, moment_text, optional_timestamp, shown_state
from cloister_api.schemas.accounts import AuditRowResponse
from cloister_api.schemas.forms import ContainerUser
from cloister_api.schemas.organization_responses import AdminKeyResponse
from cloister_api.schemas.resources import (
    DeploymentResponse,
    DomainResponse,
    RegistryStatusResponse,
    SecretResponse,
    SshKeyResponse,
)
from cloister_clients.clock import utc_text
from cloister_crds.kinds import Container, Deployment, Domain, RegistryCredential, Secret, SSHKey
from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.kinds.domain import DomainRecords
from cloister_crds.kinds.meta import GROUP, ObjectMeta
from cloister_crds.lifecycle.state.conditions import condition
from cloister_crds.names import RepositoryNames

VALUE_ANNOTATION = f"{GROUP}/value-updated-at"
"""When the facade last wrote the value; it also triggers a reconcile."""

COUNTS = {
    ContainerPhase.READY: "ready_count",
    ContainerPhase.FAILED: "failed_count",
    ContainerPhase.STOPPED: "stopped_count",
    ContainerPhase.STOPPING: "stopped_count",
}
"""Counts of the phases; the rest is deploying."""


def value_written_at(meta: ObjectMeta, reported: datetime | None) -> str:
    """Return when a value was last written, by the facade or by anyone else.

    Parameters
    ----------
    meta
        Metadata of the object that the value belongs to.
    reported
        When the operator found a new value; None if it has not found one.
    """
    times = (created_at(meta), meta.annotations.get(VALUE_ANNOTATION))
    return max(filter(None, (*times, optional_timestamp(reported))))


def users_of(containers: Iterable[Container]) -> list[ContainerUser]:
    """Return containers that use something as the API names them, by name, production first."""
    users = (
        ContainerUser(id=each.identifier, name=each.display_name, debug=each.spec.debug)
        for each in containers
    )
    return sorted(users, key=lambda user: (user.name, user.debug, user.id))


def secret_record(secret: Secret, users: Sequence[ContainerUser]) -> SecretResponse:
    """Return the record of a secret."""
    meta = secret.metadata
    return SecretResponse(
        id=secret.identifier,
        name=secret.spec.name,
        created_at=created_at(meta),
        updated_at=value_written_at(meta, secret.status.value_updated_at),
        used_by=[each.name for each in users],
        used_by_containers=list(users),
        repo=secret.spec.repo or None,
    )


def key_record(key: SSHKey, users: Sequence[ContainerUser]) -> SshKeyResponse:
    """Return the record of an SSH key."""
    return SshKeyResponse(
        id=key.identifier,
        name=key.metadata.name,
        key_type=key.spec.public_key.split(" ", 1)[0],
        created_at=created_at(key.metadata),
        used_by=[each.name for each in users],
        used_by_containers=list(users),
    )


def domain_record(domain: Domain, users: Sequence[ContainerUser]) -> DomainResponse:
    """Return the record of a custom domain; what the operator has not reported yet is empty."""
    status = domain.status
    records = status.records or DomainRecords()
    ready = condition(status.conditions, "Ready")
    return DomainResponse(
        id=domain.identifier,
        domain=domain.spec.domain,
        verification_nonce=records.txt_value.rpartition(":")[2],
        cname_hash=records.cname_target.partition(".")[0],
        verified=status.verified,
        verified_at=optional_timestamp(status.verified_at),
        created_at=created_at(domain.metadata),
        used_by=[each.name for each in users],
        used_by_containers=list(users),
        txt_record_host=records.txt_name,
        txt_record_value=records.txt_value,
        cname_target=records.cname_target,
        cname_configured=status.cname_configured,
        checked_at=optional_timestamp(status.checked_at),
        lost_at=optional_timestamp(status.lost_at),
        message=ready.message if ready is not None else "",
    )


def registry_record(credential: RegistryCredential | None) -> RegistryStatusResponse:
    """Return the status of a registry's credentials; None if there are none."""
    if credential is None:
        return RegistryStatusResponse(has_credentials=False, expired=False)
    status = credential.status
    return RegistryStatusResponse(
        has_credentials=True,
        updated_at=value_written_at(credential.metadata, status.value_updated_at),
        expired=status.expired,
        username=status.username or None,
    )


def deployment_record(
    cached: CachedResource[Deployment],
    containers: Iterable[Container],
    repositories: RepositoryNames,
) -> DeploymentResponse:
    """Return the record of a deployment, with the counts of its containers.

    Parameters
    ----------
    containers
        All Containers of the organization that are not being deleted.
    """
    deployment = cached.value
    own = [each for each in containers if repositories.same(each.spec.repo, deployment.spec.repo)]
    counts = Counter(COUNTS.get(shown_state(each).phase, "deploying_count") for each in own)
    return DeploymentResponse(
        id=deployment.identifier,
        repo=deployment.spec.repo,
        default_staging=deployment.spec.default_staging,
        created_at=created_at(deployment.metadata),
        updated_at=cached.updated_at,
        instance_count=len(own),
        ready_count=counts["ready_count"],
        failed_count=counts["failed_count"],
        stopped_count=counts["stopped_count"],
        deploying_count=counts["deploying_count"],
    )


def admin_key_record(key: AdminKey, *, valid: bool) -> AdminKeyResponse:
    """Return the record of an admin key, which has no value."""
    return AdminKeyResponse(
        id=key.id,
        name=key.name,
        last_four=key.last_four,
        created_by=key.created_by,
        created_at=utc_text(key.created_at),
        expires_at=moment_text(key.expires_at),
        last_used_at=moment_text(key.last_used_at),
        revoked_at=moment_text(key.revoked_at),
        revoked_because=key.revoked_because,
        valid=valid,
    )


FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters by which a spreadsheet takes a text for a formula."""


def audit_record(number: int, row: AuditRow) -> AuditRowResponse:
    """Return the record of a row."""
    return AuditRowResponse(
        id=number,
        at=utc_text(row.at),
        request_id=row.request_id,
        actor=row.actor,
        via=via_of(row),
        key_id=row.key_id,
        session_id=row.session_id,
        action=row.action,
        target=row.target,
        result=row.result,
    )


def via_of(row: AuditRow) -> Literal["key", "session", "command", "system"]:
    """Return how something was attempted."""
    if row.key_id is not None:
        return "key"
    if row.session_id is not None:
        return "session"
    return "command" if row.actor.startswith(COMMAND_LINE) else "system"


def csv_text(records: Iterable[AuditRowResponse]) -> str:
    """Return rows as CSV (RFC 4180) with a header line.

    A text that a spreadsheet would run as a formula gets an apostrophe in front.
    """
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(AuditRowResponse.model_fields)
    for record in records:
        writer.writerow(harmless(value) for _, value in record)
    return file.getvalue()


def harmless(value: object) -> object:
    """Return a cell that no spreadsheet runs."""
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value
