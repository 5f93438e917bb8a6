"""/api/secrets (spec, "Related resources"; client contract, section 3)."""

from typing import Any

from fastapi import APIRouter, Request, Response

from cloister_api.routes.dependencies import (
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
from cloister_api.schemas.answers import Secret
from cloister_api.schemas.resources import CreateSecretRequest, UpdateSecretRequest

__all__ = ["router"]

router = APIRouter(prefix="/api/secrets", tags=["secrets"], route_class=StrictRoute)


def order_of(record: dict[str, Any]) -> tuple[str, ...]:
    """Answer what orders secrets."""
    return (record["name"], record.get("repo", ""))


@router.get("", responses=says(list[Secret], 400))
async def list_secrets(request: Request, limit: Limit = None, cursor: Cursor = None) -> Response:
    """List the secrets of the organization; values are never answered."""
    records = context_of(request).related.secrets.all(principal_of(request))
    shown, headers = piece(
        request, records, lambda each: (each["name"], each.get("repo", "")), limit, cursor
    )
    return answer(shown, headers=headers)


@router.post("", status_code=201, responses=says(Secret, 409, status=201))
async def create_secret(request: Request, body: CreateSecretRequest) -> Response:
    """Create a secret."""
    retry_key = retry_key_of(request)
    async with Act(request, "secret.create", body.name, success=201) as act:
        made = await context_of(request).related.secrets.create(
            principal_of(request), body, retry_key
        )
        act.target = made.record["id"]
    return recorded_answer(made, 201, {"location": f"/api/secrets/{body.name}"})


@router.get("/{name}", responses=says(Secret, 404, 409))
async def get_secret(request: Request, name: Named) -> Response:
    """Answer the metadata of a secret and who uses it."""
    return recorded_answer(context_of(request).related.secrets.one(principal_of(request), name))


@router.put("/{name}", responses=says(Secret, 404, 409, 412))
async def update_secret(request: Request, name: Named, body: UpdateSecretRequest) -> Response:
    """Write a new value; containers get it at their next deploy."""
    async with Act(request, "secret.update", name):
        written = await context_of(request).related.secrets.update(
            principal_of(request), name, body.value, match_of(request)
        )
    return recorded_answer(written)


@router.delete("/{name}", status_code=204, responses=says(None, 404, 409, 412, status=204))
async def delete_secret(request: Request, name: Named) -> Response:
    """Delete a secret that nobody uses."""
    async with Act(request, "secret.delete", name, success=204):
        await context_of(request).related.secrets.delete(
            principal_of(request), name, match_of(request)
        )
    return Response(status_code=204)
