"""What each role may do: one rule per operation of the API (spec 30).

Admin keys have the rights of administrators, and the pages of the dashboard those of the
operations that do the same.
"""

from collections.abc import Mapping
from enum import StrEnum

from starlette.routing import compile_path

from cloister_api.errors import ApiError, forbidden
from cloister_crds.kinds.organization import Role


class RoleRight(StrEnum):
    """What an operation requires."""

    READ = "read"
    """Read what the organization has."""
    AUDIT = "audit"
    """Read also who did what and what was paid."""
    DEPLOY = "deploy"
    """Create, update, stop and start containers."""
    ADMINISTER = "administer"
    """Everything else that changes something."""


RIGHTS: Mapping[Role, frozenset[RoleRight]] = {
    Role.ADMIN: frozenset(RoleRight),
    Role.DEVELOPER: frozenset({RoleRight.READ, RoleRight.DEPLOY}),
    Role.AUDITOR: frozenset({RoleRight.READ, RoleRight.AUDIT}),
    Role.MEMBER: frozenset({RoleRight.READ}),
}
"""The rights of each role."""

RULES: Mapping[RoleRight, tuple[str, ...]] = {
    RoleRight.READ: (
        "GET /api/billing/breakdown",
        "GET /api/billing/runtime",
        "GET /api/billing/time-series",
        "GET /api/billing/usage",
        "GET /api/containers",
        "GET /api/containers/hosts",
        "GET /api/containers/{container_id}",
        "GET /api/containers/{container_id}/events",
        "GET /api/containers/{container_id}/logs",
        "GET /api/containers/{container_id}/measurement",
        "GET /api/containers/{container_id}/metrics",
        "GET /api/containers/{container_id}/status",
        "GET /api/containers/{container_id}/update",
        "GET /api/containers/{container_id}/update/diff",
        "GET /api/deployments",
        "GET /api/domains",
        "GET /api/keys",
        "GET /api/members",
        "GET /api/organization",
        "GET /api/registry-credentials",
        "GET /api/releases",
        "GET /api/secrets",
        "GET /api/secrets/{name}",
        "GET /api/session",
        "GET /api/ssh-keys",
    ),
    RoleRight.AUDIT: (
        "GET /api/admin-keys",
        "GET /api/audit",
        "GET /api/billing/transactions",
        "POST /api/billing/usage/key",
    ),
    RoleRight.DEPLOY: (
        "PATCH /api/deployments/{deployment_id}",
        "POST /api/containers",
        "POST /api/containers/validate",
        "POST /api/containers/validate-name",
        "POST /api/containers/{container_id}/auto-update",
        "POST /api/containers/{container_id}/github-connection",
        "POST /api/containers/{container_id}/relaunch",
        "POST /api/containers/{container_id}/start",
        "POST /api/containers/{container_id}/stop",
        "POST /api/containers/{container_id}/update/accept",
        "POST /api/containers/{container_id}/update/cancel",
        "POST /api/deployments/{deployment_id}/update",
    ),
    RoleRight.ADMINISTER: (
        "DELETE /api/admin-keys/{key_id}",
        "DELETE /api/containers/{container_id}",
        "DELETE /api/domains/{domain}",
        "DELETE /api/keys/by-id/{number}",
        "DELETE /api/keys/{key}",
        "DELETE /api/members/{user:path}",
        "DELETE /api/registry-credentials/{registry}",
        "DELETE /api/secrets/{name}",
        "DELETE /api/ssh-keys/{name}",
        "PATCH /api/keys/by-id/{number}",
        "POST /api/admin-keys",
        "POST /api/admin-keys/{key_id}/reveal",
        "POST /api/domains",
        "POST /api/domains/{domain}/verify",
        "POST /api/keys",
        "POST /api/keys/update",
        "POST /api/secrets",
        "POST /api/ssh-keys",
        "PUT /api/members/{user:path}",
        "PUT /api/registry-credentials/{registry}",
        "PUT /api/secrets/{name}",
    ),
}
"""The operations of each right, by method and template of the path."""

_COMPILED = tuple(
    (method, compile_path(path)[0], right)
    for right, operations in RULES.items()
    for method, path in (operation.split(" ", 1) for operation in operations)
)


def right_of(method: str, path: str) -> RoleRight:
    """Return which right a request requires.

    What no rule names is not served; it is refused like a change, or not found like a read.
    """
    asked = "GET" if method == "HEAD" else method
    for each, pattern, right in _COMPILED:
        if each == asked and pattern.fullmatch(path):
            return right
    return RoleRight.READ if asked == "GET" else RoleRight.ADMINISTER


def require(role: Role, right: RoleRight) -> None:
    """Refuse what a role may not do.

    Raises
    ------
    ApiError
        403 with the roles that may.
    """
    if right not in RIGHTS[role]:
        raise role_lacks(role, right)


def role_lacks(role: Role, right: RoleRight) -> ApiError:
    """403: the role does not have a right."""
    able = " or ".join(each for each in Role if right in RIGHTS[each])
    return forbidden(
        f"your role in this organization is {role}, and this needs the role {able}; ask an "
        "administrator of the organization to do it, or to change your role"
    )
