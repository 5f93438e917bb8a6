"""Custom domains of an organization, with the DNS records that their owner has to create."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloister_api.dashboard.forms import Form
from cloister_api.dashboard.pages.requests import context_of, principal_of, render, submit
from cloister_api.dashboard.views.rows import domain_rows
from cloister_api.errors import ApiError
from cloister_api.routes.audit import AuditedWrite
from cloister_api.schemas.resources import CreateDomainRequest

__all__ = ["ROUTES"]


async def show(request: Request) -> Response:
    """Show the domains."""
    return await page(request, Form.fresh())


async def page(request: Request, form: Form, problem: ApiError | None = None) -> Response:
    """Return the page with what was typed, and why that was not done."""
    principal = principal_of(request)
    return render(
        request,
        "domains.html",
        problem=problem,
        typed=form,
        rows=domain_rows(context_of(request).related.domains.all(principal)),
        suffixes=principal.organization.spec.entitlements.domain_suffixes,
        parts=("domains", "containers", "organization"),
    )


async def create(request: Request) -> Response:
    """Register a domain."""

    async def write(form: Form, written: AuditedWrite) -> str:
        principal = principal_of(request)
        written.target = form.get("domain")
        body = CreateDomainRequest(domain=form.get("domain"))
        made = await context_of(request).related.domains.create(principal, body, form.retry)
        written.target = made.record.id
        return f"/o/{principal.slug}/domains"

    return await submit(request, "domain.create", "", write, page, success=201)


async def verify(request: Request) -> Response:
    """Look at the records of a domain now."""
    domain = request.path_params["domain"]

    async def write(_: Form, __: AuditedWrite) -> str:
        principal = principal_of(request)
        await context_of(request).related.domains.verify(principal, domain, None)
        return f"/o/{principal.slug}/domains"

    return await submit(request, "domain.verify", domain, write, page)


async def delete(request: Request) -> Response:
    """Delete a domain that nobody uses."""
    domain = request.path_params["domain"]

    async def write(_: Form, __: AuditedWrite) -> str:
        principal = principal_of(request)
        await context_of(request).related.domains.delete(principal, domain, None)
        return f"/o/{principal.slug}/domains"

    return await submit(request, "domain.delete", domain, write, page, success=204)


ROUTES = (
    Route("/o/{slug}/domains", show),
    Route("/o/{slug}/domains", create, methods=["POST"]),
    Route("/o/{slug}/domains/{domain}/verify", verify, methods=["POST"]),
    Route("/o/{slug}/domains/{domain}/delete", delete, methods=["POST"]),
)
"""Routes of the module."""
