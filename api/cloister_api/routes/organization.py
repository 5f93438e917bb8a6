"""/api/session, /api/organization and /api/members: who asks, and the organization of the key."""

from fastapi import APIRouter, Request

from cloister_api.routes.dependencies import context_of, principal_of
from cloister_api.routes.pagination import paginate
from cloister_api.routes.parameters import Cursor, Limit
from cloister_api.routes.responses import LINK, responses
from cloister_api.routes.route_classes import StrictRoute
from cloister_api.schemas.organization_responses import (
    MemberResponse,
    OrganizationResponse,
    SessionResponse,
)
from cloister_api.wire.json_response import JsonResponse

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["organization"], route_class=StrictRoute)


@router.get("/session", responses=responses())
async def get_session(request: Request) -> JsonResponse[SessionResponse]:
    """Return who the caller is: user, admin key, organization and role."""
    return JsonResponse(context_of(request).organization.session(principal_of(request)))


@router.get("/organization", responses=responses())
async def get_organization(request: Request) -> JsonResponse[OrganizationResponse]:
    """Return the organization: limits, entitlements, billing, counts."""
    return JsonResponse(context_of(request).organization.of(principal_of(request)))


@router.get("/members", responses=responses(400, headers=(LINK,)))
async def list_members(
    request: Request, limit: Limit = None, cursor: Cursor = None
) -> JsonResponse[list[MemberResponse]]:
    """List the people of the organization, by name."""
    members = context_of(request).organization.members(principal_of(request))
    page, headers = paginate(request, members, lambda each: (each.user,), limit, cursor)
    return JsonResponse(page, headers=headers)
