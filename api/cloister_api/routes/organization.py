"""Who asks, and their organization: /api/session, /api/organization, /api/members, /api/admin-keys.

Members and admin keys are changed by administrators who are signed in, never by an admin key. No
value of a key reaches a log.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from cloister_api.records.resources import admin_key_record
from cloister_api.routes.audit import AuditedAction
from cloister_api.routes.dependencies import (
    NO_FIELDS,
    StrictRoute,
    context_of,
    person_of,
    principal_of,
)
from cloister_api.routes.parameters import CACHE_CONTROL, LINK, Cursor, Limit, paginate, responses
from cloister_api.schemas.accounts import CreateAdminKeyRequest, PutMemberRequest
from cloister_api.schemas.organization_responses import (
    AdminKeyResponse,
    AdminKeyValueResponse,
    MemberResponse,
    OrganizationResponse,
    SessionResponse,
)
from cloister_api.services.resources.organization import is_valid
from cloister_api.wire import JsonResponse
from cloister_crds.kinds.organization import Role

router = APIRouter(prefix="/api", tags=["organization"], route_class=StrictRoute)

MEMBERS = "/members"
ADMIN_KEYS = "/admin-keys"
UNSTORED = {"cache-control": "no-store"}
"""Header of the response that holds the value of a key."""
SESSION_ALONE: dict[str, Any] = {"security": [{"session": []}]}
"""What the document says of operations that an admin key may not call."""
User = Annotated[
    str, Path(description="Name of the person, percent-encoded.", min_length=1, max_length=253)
]
KeyId = Annotated[str, Path(description="Its identifier.", min_length=1, max_length=64)]


@router.get("/session", responses=responses())
async def get_session(request: Request) -> JsonResponse[SessionResponse]:
    """Return who the caller is: user, admin key or session, organizations and roles."""
    context, principal = context_of(request), principal_of(request)
    memberships = context.sessions.memberships(principal.user)
    return JsonResponse(context.organization.session(principal, memberships))


@router.get("/organization", responses=responses())
async def get_organization(request: Request) -> JsonResponse[OrganizationResponse]:
    """Return the organization: limits, entitlements, billing, counts."""
    return JsonResponse(context_of(request).organization.of(principal_of(request)))


@router.get(MEMBERS, responses=responses(400, headers=(LINK,)))
async def list_members(
    request: Request, limit: Limit = None, cursor: Cursor = None
) -> JsonResponse[list[MemberResponse]]:
    """List the people of the organization, by name."""
    members = context_of(request).organization.members(principal_of(request))
    page, headers = paginate(request, members, lambda each: (each.user,), limit, cursor)
    return JsonResponse(page, headers=headers)


@router.put(f"{MEMBERS}/{{user:path}}", responses=responses(404, 409), openapi_extra=SESSION_ALONE)
async def put_member(
    request: Request, user: User, body: PutMemberRequest
) -> JsonResponse[MemberResponse]:
    """Add somebody, or change their role; only a session may. Admin keys end with the role."""
    async with AuditedAction(request, "member.put", user):
        context, principal = context_of(request), person_of(request, recent=True)
        await context.members.put(principal, user, body.role)
    keys = await context.admin_key_desk.valid_of(principal, user)
    return JsonResponse(MemberResponse(user=user, role=Role(body.role), admin_keys=len(keys)))


@router.delete(
    f"{MEMBERS}/{{user:path}}",
    status_code=204,
    responses=responses(404, 409, status=204),
    openapi_extra=SESSION_ALONE,
)
async def remove_member(request: Request, user: User) -> Response:
    """Remove somebody, whose admin keys end; only a session may."""
    async with AuditedAction(request, "member.remove", user, success=204):
        principal = person_of(request, recent=True)
        await context_of(request).members.expel(principal, user)
    return Response(status_code=204)


@router.get(ADMIN_KEYS, responses=responses(400, headers=(LINK,)), openapi_extra=SESSION_ALONE)
async def list_admin_keys(
    request: Request, limit: Limit = None, cursor: Cursor = None
) -> JsonResponse[list[AdminKeyResponse]]:
    """List the admin keys of the organization, oldest first, without values; only for sessions."""
    context, principal = context_of(request), person_of(request)
    now = context.clock()
    records = [
        admin_key_record(each, valid=is_valid(each, now))
        for each in context.admin_key_desk.of(principal)
    ]
    page, headers = paginate(
        request, records, lambda each: (each.created_at, each.id), limit, cursor
    )
    return JsonResponse(page, headers=headers)


# Nothing is at a path of one key, so that there is no Location.
@router.post(
    ADMIN_KEYS, status_code=201, responses=responses(status=201), openapi_extra=SESSION_ALONE
)
async def create_admin_key(
    request: Request, body: CreateAdminKeyRequest
) -> JsonResponse[AdminKeyResponse]:
    """Create an admin key of who is signed in, which ends with their role; only a session may."""
    async with AuditedAction(request, "admin_key.create", body.name, success=201) as action:
        context, principal = context_of(request), person_of(request, recent=True)
        days = "" if body.days is None else str(body.days)
        made = await context.admin_key_desk.create(principal, name=body.name, days=days)
        action.target = made.id
    return JsonResponse(admin_key_record(made, valid=True), 201)


@router.post(
    f"{ADMIN_KEYS}/{{key_id}}/reveal",
    dependencies=NO_FIELDS,
    responses=responses(404, 409, headers=(CACHE_CONTROL,)),
    openapi_extra=SESSION_ALONE,
)
async def reveal_admin_key(request: Request, key_id: KeyId) -> JsonResponse[AdminKeyValueResponse]:
    """Return the value of an admin key, only to its creator and to sessions."""
    async with AuditedAction(request, "admin_key.reveal", key_id):
        principal = person_of(request, recent=True)
        value = await context_of(request).admin_key_desk.reveal(principal, key_id)
    return JsonResponse(AdminKeyValueResponse(key=value), headers=UNSTORED)


@router.delete(
    f"{ADMIN_KEYS}/{{key_id}}",
    status_code=204,
    responses=responses(404, status=204),
    openapi_extra=SESSION_ALONE,
)
async def revoke_admin_key(request: Request, key_id: KeyId) -> Response:
    """Revoke an admin key permanently, also another user's; only a session may."""
    async with AuditedAction(request, "admin_key.revoke", key_id, success=204):
        await context_of(request).admin_key_desk.revoke(person_of(request), key_id)
    return Response(status_code=204)
