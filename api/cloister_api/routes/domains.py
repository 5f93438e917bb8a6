"""/api/domains (spec, "Related resources"; client contract, section 3)."""

from fastapi import APIRouter, Request, Response

from cloister_api.routes.dependencies import (
    NO_FIELDS,
    Act,
    answer,
    context_of,
    match_of,
    principal_of,
    recorded_answer,
    retry_key_of,
)
from cloister_api.routes.pagination import Cursor, Limit, piece
from cloister_api.routes.responses import Named, says
from cloister_api.routes.strict import StrictRoute
from cloister_api.schemas.answers import Domain
from cloister_api.schemas.resources import CreateDomainRequest

__all__ = ["router"]

router = APIRouter(prefix="/api/domains", tags=["domains"], route_class=StrictRoute)


@router.get("", responses=says(list[Domain], 400))
async def list_domains(request: Request, limit: Limit = None, cursor: Cursor = None) -> Response:
    """List the custom domains of the organization."""
    records = context_of(request).related.domains.all(principal_of(request))
    shown, headers = piece(request, records, lambda each: (each["domain"],), limit, cursor)
    return answer(shown, headers=headers)


@router.post("", status_code=201, responses=says(Domain, 409, status=201))
async def create_domain(request: Request, body: CreateDomainRequest) -> Response:
    """Register a custom domain."""
    retry_key = retry_key_of(request)
    async with Act(request, "domain.create", body.domain, success=201) as act:
        made = await context_of(request).related.domains.create(
            principal_of(request), body, retry_key
        )
        act.target = made.record["id"]
    return recorded_answer(made, 201, {"location": f"/api/domains/{body.domain}"})


@router.post("/{domain}/verify", dependencies=NO_FIELDS, responses=says(Domain, 404, 412))
async def verify_domain(request: Request, domain: Named) -> Response:
    """Look at the DNS records of a domain now."""
    async with Act(request, "domain.verify", domain, success=200):
        seen = await context_of(request).related.domains.verify(
            principal_of(request), domain, match_of(request)
        )
    return recorded_answer(seen)


@router.delete("/{domain}", status_code=204, responses=says(None, 404, 409, 412, status=204))
async def delete_domain(request: Request, domain: Named) -> Response:
    """Delete a custom domain that nobody uses."""
    async with Act(request, "domain.delete", domain, success=204):
        await context_of(request).related.domains.delete(
            principal_of(request), domain, match_of(request)
        )
    return Response(status_code=204)
