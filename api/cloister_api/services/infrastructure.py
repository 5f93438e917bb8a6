"""What the services are built on."""

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.cache import ClusterCache
from cloister_api.ledger.audit import AuditTrail
from cloister_api.settings import ApiSettings
from cloister_clients.clock import Clock
from cloister_clients.kube import KubeClient
from cloister_crds.installation import InstallationSettings


@dataclass(frozen=True, slots=True)
class Infrastructure:
    """What the services are built on."""

    settings: ApiSettings
    """The administrator's settings."""
    installation: InstallationSettings
    """What the operator has published of its settings."""
    clock: Clock
    """The clock."""
    client: KubeClient
    """Client of the cluster."""
    cache: ClusterCache
    """Custom resources in memory."""
    engine: AsyncEngine
    """The ledger."""
    audit: AuditTrail
    """Audit trail."""
