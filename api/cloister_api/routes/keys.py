"""/api/keys (spec 9, 25). No value of a key reaches a log."""

from typing import Annotated

from fastapi import APIRouter, Path, Request

from cloister_api.routes.audit import AuditedAction
from cloister_api.routes.dependencies import StrictRoute, context_of, principal_of
from cloister_api.routes.parameters import (
    CACHE_CONTROL,
    LINK,
    MAX_LIMIT,
    Cursor,
    IdempotencyKey,
    Limit,
    checked_idempotency_key,
    decode_cursor,
    next_page,
    not_a_cursor,
    responses,
)
from cloister_api.schemas.accounts import ApiKeyResponse, MessageResponse
from cloister_api.schemas.keys import ChangeApiKeyRequest, CreateApiKeyRequest, UpdateApiKeyRequest
from cloister_api.services.api_keys import NUMBER, veiled
from cloister_api.wire import JsonResponse

router = APIRouter(prefix="/api/keys", tags=["keys"], route_class=StrictRoute)

UNSTORED = {"cache-control": "no-store"}
"""Header of responses that hold values of keys."""
DELETED = "API key deleted"
Number = Annotated[
    str, Path(description="Its number.", json_schema_extra={"pattern": "^[1-9][0-9]{0,17}$"})
]
UNKNOWN = "-"
"""Target in the audit trail while it is not known which key is meant."""


@router.get("", responses=responses(400, headers=(CACHE_CONTROL, LINK)))
async def list_keys(
    request: Request, limit: Limit = None, cursor: Cursor = None
) -> JsonResponse[list[ApiKeyResponse]]:
    """List the regular keys of the organization, oldest first."""
    principal = principal_of(request)
    size = None if limit is None and cursor is None else limit or MAX_LIMIT
    records = await context_of(request).accounts.keys.all(
        principal, after=number_in(cursor), limit=size and size + 1
    )
    headers: dict[str, str] = {}
    if size is not None and len(records) > size:
        records = records[:size]
        headers = next_page(request, size, (str(records[-1].id),))
    if principal.session_id:
        # The page's form reveals a value, with a recent sign-in and a row in the audit trail.
        records = list(map(veiled, records))
    return JsonResponse(records, headers={**UNSTORED, **headers})


def number_in(cursor: str | None) -> int:
    """Return the number of the key that a page follows; 0 if the page is the first.

    Raises
    ------
    ApiError
        400 when the cursor is not of this list.
    """
    if cursor is None:
        return 0
    key = decode_cursor(cursor)
    if len(key) != 1 or not NUMBER.fullmatch(key[0]):
        raise not_a_cursor()
    return int(key[0])


# The value of a key is secret, so that there is no path to it and no Location.
@router.post("", responses=responses(402, headers=(CACHE_CONTROL,)))
async def create_key(
    request: Request, body: CreateApiKeyRequest, key: IdempotencyKey = None
) -> JsonResponse[ApiKeyResponse]:
    """Create a regular key."""
    context, principal = context_of(request), principal_of(request)
    retry_key = checked_idempotency_key(key)
    async with AuditedAction(request, "api_key.create", body.name) as action:
        number, record = await context.accounts.keys.create(principal, body, retry_key)
        action.target = str(number)
    await context.accounts.key_cache.refresh()
    return JsonResponse(record, headers=UNSTORED)


@router.post("/update", responses=responses(404))
async def update_key(request: Request, body: UpdateApiKeyRequest) -> JsonResponse[MessageResponse]:
    """Change name or cap of a key that is named by its full value."""
    context, principal = context_of(request), principal_of(request)
    async with AuditedAction(request, "api_key.update", UNKNOWN) as action:
        key = await context.accounts.keys.find(principal, body.key)
        action.target = str(key.id)
        await context.accounts.keys.update(key, body)
    await context.accounts.key_cache.refresh()
    return JsonResponse(MessageResponse(message="API key updated"))


@router.delete("/{key}", responses=responses(404))
async def delete_key(
    request: Request, key: Annotated[str, Path(description="Its full value.", min_length=1)]
) -> JsonResponse[MessageResponse]:
    """Delete the key with a full value."""
    context, principal = context_of(request), principal_of(request)
    async with AuditedAction(request, "api_key.delete", UNKNOWN) as action:
        found = await context.accounts.keys.find(principal, key)
        action.target = str(found.id)
        await context.accounts.keys.delete(found)
    await context.accounts.key_cache.refresh()
    return JsonResponse(MessageResponse(message=DELETED))


@router.patch("/by-id/{number}", responses=responses(404, headers=(CACHE_CONTROL,)))
async def change_key(
    request: Request, number: Number, body: ChangeApiKeyRequest
) -> JsonResponse[ApiKeyResponse]:
    """Change name or cap of a key, or switch it off or on, also another user's."""
    context, principal = context_of(request), principal_of(request)
    async with AuditedAction(request, "api_key.update", number) as action:
        key = await context.accounts.keys.numbered(principal, number)
        action.target = str(key.id)
        await context.accounts.keys.update(key, body)
    await context.accounts.key_cache.refresh()
    record = await context.accounts.keys.record(principal, key.id)
    if principal.session_id:
        record = veiled(record)
    return JsonResponse(record, headers=UNSTORED)


@router.delete("/by-id/{number}", responses=responses(404))
async def delete_numbered_key(request: Request, number: Number) -> JsonResponse[MessageResponse]:
    """Delete a key, also another user's."""
    context, principal = context_of(request), principal_of(request)
    async with AuditedAction(request, "api_key.delete", number) as action:
        key = await context.accounts.keys.numbered(principal, number)
        action.target = str(key.id)
        await context.accounts.keys.delete(key)
    await context.accounts.key_cache.refresh()
    return JsonResponse(MessageResponse(message=DELETED))
