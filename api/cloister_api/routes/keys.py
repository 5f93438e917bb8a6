"""/api/keys (spec, "API keys"; client contract, section 4). No value of a key reaches a log."""

from fastapi import APIRouter, Request, Response

from cloister_api.routes.request import Act, answer, context_of, principal_of
from cloister_api.schemas.keys import CreateKey, UpdateKey

__all__ = ["router"]

router = APIRouter(prefix="/api/keys", tags=["keys"])

UNSTORED = {"cache-control": "no-store"}
"""Header of answers that hold values of keys."""
UNKNOWN = "-"
"""Target in the audit trail while it is not known which key is meant."""


@router.get("")
async def list_keys(request: Request) -> Response:
    """List the regular keys of the organization, oldest first."""
    records = await context_of(request).accounts.keys.all(principal_of(request))
    return answer(records, headers=UNSTORED)


@router.post("", status_code=201)
async def create_key(request: Request, body: CreateKey) -> Response:
    """Create a regular key."""
    context, principal = context_of(request), principal_of(request)
    async with Act(request, "api_key.create", body.name, success=201) as act:
        number, record = await context.accounts.keys.create(principal, body)
        act.target = str(number)
    await context.accounts.book.refresh()
    return answer(record, 201, UNSTORED)


@router.post("/update")
async def update_key(request: Request, body: UpdateKey) -> Response:
    """Change name or cap of a key that is named by its full value."""
    context, principal = context_of(request), principal_of(request)
    async with Act(request, "api_key.update", UNKNOWN) as act:
        key = await context.accounts.keys.find(principal, body.key)
        act.target = str(key.id)
        await context.accounts.keys.update(key, body)
    await context.accounts.book.refresh()
    return answer({"message": "API key updated"})


@router.delete("/{key}")
async def delete_key(request: Request, key: str) -> Response:
    """Delete the key with a full value."""
    context, principal = context_of(request), principal_of(request)
    async with Act(request, "api_key.delete", UNKNOWN) as act:
        found = await context.accounts.keys.find(principal, key)
        act.target = str(found.id)
        await context.accounts.keys.delete(found)
    await context.accounts.book.refresh()
    return answer({"message": "API key deleted"})
