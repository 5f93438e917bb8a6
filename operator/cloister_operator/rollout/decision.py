"""The decision of a reconcile: the next status, actions in order, lookups, when to requeue.

`decide` makes it, the operator applies it: first `Decision.actions` in order, then one write of
`Decision.status` with the resourceVersion that was observed. Every action is idempotent.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from cloister_crds.kinds.container import ContainerStatus
from cloister_crds.kinds.enclave import EnclaveSpec
from cloister_crds.lifecycle.state.observed import Need, SecretRefKey

__all__ = [
    "Action",
    "ClaimHostname",
    "CreateEnclave",
    "Decision",
    "DeleteEnclave",
    "DeletePreview",
    "DeleteRoute",
    "DeleteService",
    "DeleteShells",
    "EnsureDeployment",
    "RecordDemoted",
    "RecordServing",
    "ReleaseHostname",
    "RouteHostname",
    "RoutePreview",
    "RouteShells",
    "RouteTo",
    "TransferHostname",
]


@dataclass(frozen=True, slots=True)
class CreateEnclave:
    """Create an Enclave by POST, with its ConfigMap and its snapshot of secret values.

    AlreadyExists with our controller uid is adopted, and what is missing is added, so that the same
    action completes an Enclave whose creation was interrupted.
    """

    name: str
    """Name of the Enclave."""
    spec: EnclaveSpec
    """Its spec."""
    file: bytes | None
    """Bytes for the ConfigMap; None = copied from `copy_from`."""
    secrets: tuple[SecretRefKey, ...] = ()
    """Content of the snapshot; read from core Secrets unless `copy_from` has a snapshot."""
    copy_from: str | None = None
    """Enclave whose ConfigMap and snapshot are copied; None = they are built from scratch."""


@dataclass(frozen=True, slots=True)
class DeleteEnclave:
    """Delete an Enclave, with preconditions; its Pod and the rest are garbage-collected."""

    name: str
    """Name of the Enclave."""
    uid: str
    """uid that was observed."""
    resource_version: str
    """resourceVersion that was observed."""


@dataclass(frozen=True, slots=True)
class ClaimHostname:
    """Create the HostnameClaim of a host for this Container, by POST.

    AlreadyExists is not an error: the next reconcile sees the holder.
    """

    hostname: str
    """Host name."""


@dataclass(frozen=True, slots=True)
class TransferHostname:
    """Make this Container the holder of a HostnameClaim of the one that it replaces.

    One write, so that nobody else gets the name in between.
    """

    hostname: str
    """Host name."""
    resource_version: str
    """resourceVersion that was observed."""


@dataclass(frozen=True, slots=True)
class ReleaseHostname:
    """Delete a HostnameClaim with preconditions, after a live GET and 60 s of age."""

    hostname: str
    """Host name."""
    uid: str
    """uid that was observed."""
    resource_version: str
    """resourceVersion that was observed."""


@dataclass(frozen=True, slots=True)
class RouteTo:
    """Make the Container's Service (server-side apply) select an Enclave."""

    enclave: str
    """Name of the Enclave."""


@dataclass(frozen=True, slots=True)
class DeleteService:
    """Delete the Container's Service, with a precondition: the Container is being deleted."""

    uid: str
    """uid that was observed."""


@dataclass(frozen=True, slots=True)
class RoutePreview:
    """Make the Service of the Container's staged update (server-side apply) select an Enclave."""

    enclave: str
    """Name of the Enclave."""


@dataclass(frozen=True, slots=True)
class DeletePreview:
    """Delete the Service of the staged update, with a precondition, when nothing is staged."""

    uid: str
    """uid that was observed."""


@dataclass(frozen=True, slots=True)
class RouteShells:
    """Make the Service for SSH (server-side apply) select a debug Enclave."""

    enclave: str
    """Name of the Enclave."""


@dataclass(frozen=True, slots=True)
class DeleteShells:
    """Delete the Service for SSH, with a precondition, when nobody may log in."""

    uid: str
    """uid that was observed."""


@dataclass(frozen=True, slots=True)
class RouteHostname:
    """Route a host name to a Service of the Container (TLSRoute, server-side apply)."""

    hostname: str
    """Host name; the route is named after it."""
    service: str
    """Name of the Service."""


@dataclass(frozen=True, slots=True)
class DeleteRoute:
    """Delete the TLSRoute of a host name, with preconditions."""

    hostname: str
    """Host name."""
    uid: str
    """uid that was observed."""
    resource_version: str
    """resourceVersion that was observed."""


@dataclass(frozen=True, slots=True)
class EnsureDeployment:
    """Create the Deployment of a repository if there is none, with our label."""

    repo: str
    """``owner/name``."""


@dataclass(frozen=True, slots=True)
class RecordServing:
    """Write promotedAt of an Enclave that started to serve."""

    enclave: str
    """Name of the Enclave."""
    at: datetime
    """Since when, in UTC."""


@dataclass(frozen=True, slots=True)
class RecordDemoted:
    """Write demotedAt of an Enclave that stopped serving."""

    enclave: str
    """Name of the Enclave."""
    at: datetime
    """Since when, in UTC."""


Action: TypeAlias = (
    CreateEnclave
    | DeleteEnclave
    | ClaimHostname
    | TransferHostname
    | ReleaseHostname
    | RouteTo
    | DeleteService
    | RoutePreview
    | DeletePreview
    | RouteShells
    | DeleteShells
    | RouteHostname
    | DeleteRoute
    | EnsureDeployment
    | RecordServing
    | RecordDemoted
)
"""A change of the cluster."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from an observation."""

    rule: str
    """Name of the rule that decided, for logs and tests."""
    status: ContainerStatus
    """The complete next status; equal to the observed one when nothing changed."""
    actions: tuple[Action, ...] = ()
    """What to do, in order, before the status is written."""
    needs: tuple[Need, ...] = ()
    """What to look up outside of the reconcile; a result enqueues the Container."""
    requeue_after: timedelta | None = None
    """When to reconcile again although nothing changed; None = on changes only."""
