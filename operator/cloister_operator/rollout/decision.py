"""What a pass decides: the next status, what to do in which order, what to ask, when to look again.

`decide` makes it, the operator carries it out: first `Decision.actions` in order, then one write of
`Decision.status` with the resourceVersion that was observed. Every action is safe to repeat.
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

    AlreadyExists with our controller uid is adopted, and what it lacks is added, so that the same
    action completes an Enclave whose making was interrupted.
    """

    name: str
    """Name of the Enclave."""
    spec: EnclaveSpec
    """Its spec."""
    file: bytes | None
    """Bytes for the ConfigMap; None = copied from `copy_from`."""
    secrets: tuple[SecretRefKey, ...] = ()
    """What the snapshot holds; read from core Secrets unless `copy_from` has a snapshot."""
    copy_from: str | None = None
    """Enclave whose ConfigMap and snapshot are copied; None = made anew."""


@dataclass(frozen=True, slots=True)
class DeleteEnclave:
    """Delete an Enclave, with preconditions; its Pod and the rest go with it."""

    name: str
    """Name of the Enclave."""
    uid: str
    """uid that was observed."""
    resource_version: str
    """resourceVersion that was observed."""


@dataclass(frozen=True, slots=True)
class ClaimHostname:
    """Create the HostnameClaim of a host for this Container, by POST.

    AlreadyExists is no error: the next pass sees the holder.
    """

    hostname: str
    """Host name."""


@dataclass(frozen=True, slots=True)
class TransferHostname:
    """Make this Container the holder of a HostnameClaim that the one has which it replaces.

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
class RoutePreview:
    """Make the Service of the Container's staged update (server-side apply) select an Enclave."""

    enclave: str
    """Name of the Enclave."""


@dataclass(frozen=True, slots=True)
class DeletePreview:
    """Delete the Service of the staged update, with a precondition: nothing is staged any more."""

    uid: str
    """uid that was observed."""


@dataclass(frozen=True, slots=True)
class RouteShells:
    """Make the Service by which people log in (server-side apply) select a debug Enclave."""

    enclave: str
    """Name of the Enclave."""


@dataclass(frozen=True, slots=True)
class DeleteShells:
    """Delete the Service by which people log in, with a precondition: nobody may any more."""

    uid: str
    """uid that was observed."""


@dataclass(frozen=True, slots=True)
class RouteHostname:
    """Make the TLSRoute of a host name (server-side apply) lead to a Service of the Container."""

    hostname: str
    """Host name; the route is named after it."""
    service: str
    """Name of the Service."""


@dataclass(frozen=True, slots=True)
class DeleteRoute:
    """Delete the TLSRoute of a host name, with preconditions: the Container may not have it."""

    hostname: str
    """Host name."""
    uid: str
    """uid that was observed."""
    resource_version: str
    """resourceVersion that was observed."""


@dataclass(frozen=True, slots=True)
class EnsureDeployment:
    """Create the Deployment of a repository if there is none, with our label in the body."""

    repo: str
    """``owner/name``."""


@dataclass(frozen=True, slots=True)
class RecordServing:
    """Write promotedAt of an Enclave that has begun to serve."""

    enclave: str
    """Name of the Enclave."""
    at: datetime
    """Since when, in UTC."""


@dataclass(frozen=True, slots=True)
class RecordDemoted:
    """Write demotedAt of an Enclave that has ceased to serve."""

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
"""Something to do in the cluster."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from what was observed."""

    rule: str
    """Name of the rule that decided, for logs and tests."""
    status: ContainerStatus
    """The complete next status; equal to the observed one when nothing changed."""
    actions: tuple[Action, ...] = ()
    """What to do, in order, before the status is written."""
    needs: tuple[Need, ...] = ()
    """What to ask outside of the pass; an answer wakes the Container."""
    requeue_after: timedelta | None = None
    """When to look again although nothing was seen to change; None = on changes alone."""
