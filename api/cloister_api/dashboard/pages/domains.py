"""Custom domains of an organization, with the DNS records that their owner has to create."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloister_api.auth.authenticator import Principal
from cloister_api.context import Context
from cloister_api.dashboard.forms import Form
from cloister_api.dashboard.pages.requests import change, context_of, principal_of, render
from cloister_api.dashboard.views.rows import domain_rows
from cloister_api.errors import ApiError
from cloister_api.schemas.resources import CreateDomainRequest

__all__ = ["ROUTES"]

HERE = "domains"


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

    async def do(context: Context, principal: Principal, form: Form) -> str:
        body = CreateDomainRequest(domain=form.get("domain"))
        made = await context.related.domains.create(principal, body, form.retry)
        return str(made.record.id)

    return await change(request, "domain.create", "", do, page, then=HERE, success=201)


async def verify(request: Request) -> Response:
    """Look at the records of a domain now."""
    domain = request.path_params["domain"]

    async def do(context: Context, principal: Principal, _: Form) -> None:
        await context.related.domains.verify(principal, domain, None)

    return await change(request, "domain.verify", domain, do, page, then=HERE)


async def delete(request: Request) -> Response:
    """Delete a domain that nobody uses."""
    domain = request.path_params["domain"]

    async def do(context: Context, principal: Principal, _: Form) -> None:
        await context.related.domains.delete(principal, domain, None)

    return await change(request, "domain.delete", domain, do, page, then=HERE, success=204)


ROUTES = (
    Route("/o/{slug}/domains", show),
    Route("/o/{slug}/domains", create, methods=["POST"]),
    Route("/o/{slug}/domains/{domain}/verify", verify, methods=["POST"]),
    Route("/o/{slug}/domains/{domain}/delete", delete, methods=["POST"]),
)
"""Routes of the module."""
