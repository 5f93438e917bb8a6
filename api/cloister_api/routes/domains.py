"""/api/domains (spec 8, 24)."""

from fastapi import APIRouter, Request, Response

from cloister_api.routes.audit import AuditedAction
from cloister_api.routes.dependencies import NO_FIELDS, context_of, principal_of, record_response
from cloister_api.routes.pagination import paginate
from cloister_api.routes.parameters import (
    Cursor,
    IdempotencyKey,
    IfMatch,
    Limit,
    Name,
    checked_idempotency_key,
)
from cloister_api.routes.responses import ETAG, LINK, LOCATION, responses
from cloister_api.routes.route_classes import StrictRoute
from cloister_api.schemas.resource_responses import DomainResponse
from cloister_api.schemas.resources import CreateDomainRequest
from cloister_api.wire.json_response import JsonResponse

__all__ = ["router"]

router = APIRouter(prefix="/api/domains", tags=["domains"], route_class=StrictRoute)


@router.get("", responses=responses(400, headers=(LINK,)))
async def list_domains(
    request: Request, limit: Limit = None, cursor: Cursor = None
) -> JsonResponse[list[DomainResponse]]:
    """List the custom domains of the organization."""
    records = context_of(request).related.domains.all(principal_of(request))
    page, headers = paginate(request, records, lambda each: (each.domain,), limit, cursor)
    return JsonResponse(page, headers=headers)


@router.post("", status_code=201, responses=responses(409, status=201, headers=(LOCATION, ETAG)))
async def create_domain(
    request: Request, body: CreateDomainRequest, key: IdempotencyKey = None
) -> JsonResponse[DomainResponse]:
    """Register a custom domain."""
    retry_key = checked_idempotency_key(key)
    async with AuditedAction(request, "domain.create", body.domain, success=201) as action:
        made = await context_of(request).related.domains.create(
            principal_of(request), body, retry_key
        )
        action.target = made.record.id
    return record_response(made, 201, location=f"/api/domains/{body.domain}")


@router.post(
    "/{domain}/verify", dependencies=NO_FIELDS, responses=responses(404, 412, headers=(ETAG,))
)
async def verify_domain(
    request: Request, domain: Name, match: IfMatch = None
) -> JsonResponse[DomainResponse]:
    """Check the DNS records of a domain now."""
    async with AuditedAction(request, "domain.verify", domain, success=200):
        verified = await context_of(request).related.domains.verify(
            principal_of(request), domain, match
        )
    return record_response(verified)


@router.delete("/{domain}", status_code=204, responses=responses(404, 409, 412, status=204))
async def delete_domain(request: Request, domain: Name, match: IfMatch = None) -> Response:
    """Delete a custom domain that nobody uses."""
    async with AuditedAction(request, "domain.delete", domain, success=204):
        await context_of(request).related.domains.delete(principal_of(request), domain, match)
    return Response(status_code=204)
