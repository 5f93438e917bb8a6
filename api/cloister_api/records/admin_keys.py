"""Records of admin keys. Pure."""

from cloister_api.ledger.keys.admin_keys import AdminKey
from cloister_api.records.timestamps import moment_text
from cloister_api.schemas.organization_responses import AdminKeyResponse
from cloister_clients.clock import utc_text

__all__ = ["admin_key_record"]


def admin_key_record(key: AdminKey, *, valid: bool) -> AdminKeyResponse:
    """Return the record of an admin key, which has no value.

    Parameters
    ----------
    key
        The key.
    valid
        Whether it counts now.
    """
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
