"""/api/keys (spec, "API keys"; client contract, section 4). No value of a key reaches a log."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from cloister_api.routes.dependencies import Act, answer, context_of, principal_of, retry_key_of
from cloister_api.routes.pagination import Cursor, Limit, piece
from cloister_api.routes.responses import says
from cloister_api.routes.strict import StrictRoute
from cloister_api.schemas.account_answers import ApiKey, Message
from cloister_api.schemas.keys import CreateApiKeyRequest, UpdateApiKeyRequest

__all__ = ["router"]

router = APIRouter(prefix="/api/keys", tags=["keys"], route_class=StrictRoute)

UNSTORED = {"cache-control": "no-store"}
"""Header of answers that hold values of keys."""
UNKNOWN = "-"
"""Target in the audit trail while it is not known which key is meant."""


@router.get("", responses=says(list[ApiKey], 400))
async def list_keys(request: Request, limit: Limit = None, cursor: Cursor = None) -> Response:
    """List the regular keys of the organization, oldest first."""
    records = await context_of(request).accounts.keys.all(principal_of(request))
    shown, headers = piece(
        request, records, lambda each: (each["created_at"], each["name"]), limit, cursor
    )
    return answer(shown, headers={**UNSTORED, **headers})


@router.post("", status_code=201, responses=says(ApiKey, 402, 409, status=201))
async def create_key(request: Request, body: CreateApiKeyRequest) -> Response:
    """Create a regular key."""
    context, principal = context_of(request), principal_of(request)
    retry_key = retry_key_of(request)
    async with Act(request, "api_key.create", body.name, success=201) as act:
        number, record = await context.accounts.keys.create(principal, body, retry_key)
        act.target = str(number)
    await context.accounts.key_cache.refresh()
    return answer(record, 201, UNSTORED)


@router.post("/update", responses=says(Message, 404, 409))
async def update_key(request: Request, body: UpdateApiKeyRequest) -> Response:
    """Change name or cap of a key that is named by its full value."""
    context, principal = context_of(request), principal_of(request)
    async with Act(request, "api_key.update", UNKNOWN) as act:
        key = await context.accounts.keys.find(principal, body.key)
        act.target = str(key.id)
        await context.accounts.keys.update(key, body)
    await context.accounts.key_cache.refresh()
    return answer({"message": "API key updated"})


@router.delete("/{key}", responses=says(Message, 404))
async def delete_key(
    request: Request, key: Annotated[str, Path(description="Its full value.", min_length=1)]
) -> Response:
    """Delete the key with a full value."""
    context, principal = context_of(request), principal_of(request)
    async with Act(request, "api_key.delete", UNKNOWN) as act:
        found = await context.accounts.keys.find(principal, key)
        act.target = str(found.id)
        await context.accounts.keys.delete(found)
    await context.accounts.key_cache.refresh()
    return answer({"message": "API key deleted"})
