"""/api/domains (spec, "Related resources"; client contract, section 3)."""

from fastapi import APIRouter, Request, Response

from cloister_api.routes.request import Act, answer, context_of, principal_of
from cloister_api.schemas.resources import DomainCreate

__all__ = ["router"]

router = APIRouter(prefix="/api/domains", tags=["domains"])


@router.get("")
async def list_domains(request: Request) -> Response:
    """List the custom domains of the organization."""
    return answer(context_of(request).related.domains.all(principal_of(request)))


@router.post("", status_code=201)
async def create_domain(request: Request, body: DomainCreate) -> Response:
    """Register a custom domain."""
    async with Act(request, "domain.create", body.domain, success=201):
        made = await context_of(request).related.domains.create(principal_of(request), body)
    return answer(made, 201, {"location": f"/api/domains/{body.domain}"})


@router.post("/{domain}/verify")
async def verify_domain(request: Request, domain: str) -> Response:
    """Look at the DNS records of a domain now."""
    async with Act(request, "domain.verify", domain, success=200):
        seen = await context_of(request).related.domains.verify(principal_of(request), domain)
    return answer(seen)


@router.delete("/{domain}", status_code=204)
async def delete_domain(request: Request, domain: str) -> Response:
    """Delete a custom domain that nobody uses."""
    async with Act(request, "domain.delete", domain, success=204):
        await context_of(request).related.domains.delete(principal_of(request), domain)
    return Response(status_code=204)
