"""Regular API keys: whose they are, what they used, and how much they may.

As for admin keys the value of a key is in no page: its form is answered by plain text.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from cloister_api.dashboard.pages.container_forms import number_or_text
from cloister_api.dashboard.pages.requests import (
    context_of,
    principal_of,
    render,
    require_recent,
    sign_in_again,
    submit,
)
from cloister_api.dashboard.rendering import Form
from cloister_api.errors import ApiError, forbidden
from cloister_api.routes.audit import AuditedWrite
from cloister_api.schemas.keys import ChangeApiKeyRequest, CreateApiKeyRequest
from cloister_api.services.resources.organization import expiry_of


async def show(request: Request) -> Response:
    """Show the keys."""
    return await page(request, Form.fresh())


async def page(request: Request, form: Form, problem: ApiError | None = None) -> Response:
    """Return the page with what was typed, and why that was not done."""
    context, principal = context_of(request), principal_of(request)
    return render(
        request,
        "api_keys.html",
        problem=problem,
        typed=form,
        keys=await context.accounts.keys.all(principal),
        billed=context.organization.of(principal).billing.token_billing,
        again=sign_in_again(request, f"/o/{principal.slug}/api-keys"),
        every=30,
        parts=("organization",),
    )


async def create(request: Request) -> Response:
    """Create a key."""

    async def write(form: Form, written: AuditedWrite) -> str:
        context, principal = context_of(request), principal_of(request)
        expires = expiry_of(form.get("days"), context.clock())
        body = CreateApiKeyRequest.model_validate(
            {
                "name": form.get("name"),
                "expires_at": None if expires is None else expires.isoformat(),
                "max_tokens": number_or_text(form.get("max_tokens")),
            }
        )
        number, _ = await context.accounts.keys.create(principal, body, form.retry)
        written.target = str(number)
        await context.accounts.key_cache.refresh()
        return f"/o/{principal.slug}/api-keys"

    return await submit(request, "api_key.create", "", write, page)


async def change(request: Request) -> Response:
    """Change name or cap of a key, or switch it off or on."""
    number = request.path_params["number"]

    async def write(form: Form, _: AuditedWrite) -> str:
        context, principal = context_of(request), principal_of(request)
        key = await context.accounts.keys.numbered(principal, number)
        await context.accounts.keys.update(key, ChangeApiKeyRequest(**change_of(form)))
        await context.accounts.key_cache.refresh()
        return f"/o/{principal.slug}/api-keys"

    return await submit(request, "api_key.update", number, write, page)


def change_of(form: Form) -> dict[str, Any]:
    """Return what a form changes of a key: a button its state, the fields name and cap."""
    if form.get("disabled"):
        return {"disabled": form.get("disabled") == "true"}
    # An empty cap is none, which the API writes as zero.
    return {"name": form.get("name"), "max_tokens": number_or_text(form.get("max_tokens")) or 0}


async def reveal(request: Request) -> Response:
    """Return the value of a key as plain text, only to its creator."""
    number = request.path_params["number"]

    async def write(_: Form, __: AuditedWrite) -> Response:
        require_recent(request)
        context, principal = context_of(request), principal_of(request)
        key = await context.accounts.keys.numbered(principal, number)
        record = await context.accounts.keys.record(principal, key.id)
        if not record.is_owner:
            raise forbidden("only its creator may see this key; create one of your own")
        return PlainTextResponse(f"{record.key}\n", headers={"cache-control": "no-store"})

    return await submit(request, "api_key.reveal", number, write, page)


async def delete(request: Request) -> Response:
    """Delete a key."""
    number = request.path_params["number"]

    async def write(_: Form, __: AuditedWrite) -> str:
        context, principal = context_of(request), principal_of(request)
        key = await context.accounts.keys.numbered(principal, number)
        await context.accounts.keys.delete(key)
        await context.accounts.key_cache.refresh()
        return f"/o/{principal.slug}/api-keys"

    return await submit(request, "api_key.delete", number, write, page)


ROUTES = (
    Route("/o/{slug}/api-keys", show),
    Route("/o/{slug}/api-keys", create, methods=["POST"]),
    Route("/o/{slug}/api-keys/{number}/change", change, methods=["POST"]),
    Route("/o/{slug}/api-keys/{number}/reveal", reveal, methods=["POST"]),
    Route("/o/{slug}/api-keys/{number}/delete", delete, methods=["POST"]),
)
"""Routes of the module."""
