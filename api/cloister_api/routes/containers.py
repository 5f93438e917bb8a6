"""/api/containers (spec, "Containers"; client contract, section 1)."""

from typing import Any

from fastapi import APIRouter, Request, Response

from cloister_api.records import record, update_record
from cloister_api.routes.request import (
    TOKEN,
    Act,
    answer,
    context_of,
    principal_of,
    token_of,
)
from cloister_api.schemas.containers import (
    AutoUpdate,
    Changes,
    Connection,
    Create,
    Validate,
    ValidateName,
)
from cloister_api.services.changes import Changed
from cloister_api.views import HeldContainer

__all__ = ["router"]

router = APIRouter(prefix="/api/containers", tags=["containers"])

NO_CHANGES = Changes()
"""An absent body changes nothing."""


def record_of(request: Request, held: HeldContainer) -> dict[str, Any]:
    """Answer the record of a container of the principal's organization."""
    context, principal = context_of(request), principal_of(request)
    return record(
        held,
        principal.organization,
        context.views.deployment_of(principal.namespace, held.container.spec.repo),
        containers_domain=context.settings.containers_domain,
    )


def changed_answer(request: Request, changed: Changed) -> Response:
    """Answer the record of a container after a change."""
    return answer(record_of(request, changed.held), headers={TOKEN: changed.version})


@router.get("")
async def list_containers(request: Request) -> Response:
    """List the containers of the organization, oldest first."""
    context, principal = context_of(request), principal_of(request)
    held = await context.reading.all(principal, token_of(request))
    deployments = context.views.deployments_of(principal.namespace)
    parts = [
        (one, principal.organization, deployments.get(one.container.spec.repo)) for one in held
    ]
    return answer(context.encoder.records(parts))


@router.post("", status_code=201)
async def create_container(request: Request, body: Create) -> Response:
    """Create a container; the same request sent again after no answer finds its own work."""
    context, principal = context_of(request), principal_of(request)
    retry_key = request.headers.get("idempotency-key")
    async with Act(request, "container.create", body.name, success=201) as act:
        made = await context.creation.create(principal, body, retry_key)
        act.target = made.held.id
        shown = record_of(request, made.held)
    headers = {"location": f"/api/containers/{made.held.id}", TOKEN: made.version}
    return answer(shown, 201, headers)


@router.get("/hosts")
async def list_hosts(request: Request) -> Response:
    """List the Hosts; clients use it as their log-in check."""
    return answer(context_of(request).validation.hosts())


@router.post("/validate")
async def validate(request: Request, body: Validate) -> Response:
    """Judge a release without creating anything."""
    return answer(await context_of(request).validation.release(principal_of(request), body))


@router.post("/validate-name")
async def validate_name(request: Request, body: ValidateName) -> Response:
    """Answer whether a name can be had."""
    return answer(await context_of(request).validation.name(principal_of(request), body))


@router.get("/{container_id}")
async def get_container(request: Request, container_id: str) -> Response:
    """Answer one container."""
    held = await context_of(request).reading.get(
        principal_of(request), container_id, token_of(request)
    )
    return answer(record_of(request, held))


@router.delete("/{container_id}", status_code=204)
async def delete_container(request: Request, container_id: str) -> Response:
    """Delete a container: gone for readers at once, its name when the teardown ends."""
    context, principal = context_of(request), principal_of(request)
    async with Act(request, "container.delete", container_id, success=204):
        held = await context.reading.get(principal, container_id, token_of(request))
        await context.changing.delete(principal, held)
    return Response(status_code=204)


@router.post("/{container_id}/relaunch")
async def relaunch_container(
    request: Request, container_id: str, body: Changes = NO_CHANGES
) -> Response:
    """Make a new attempt, with what the body changes."""
    context, principal = context_of(request), principal_of(request)
    async with Act(request, "container.relaunch", container_id):
        held = await context.reading.get(principal, container_id, token_of(request))
        changed = await context.changing.relaunch(principal, held, body)
    return changed_answer(request, changed)


@router.post("/{container_id}/start")
async def start_container(
    request: Request, container_id: str, body: Changes = NO_CHANGES
) -> Response:
    """Deploy a stopped container again."""
    context, principal = context_of(request), principal_of(request)
    async with Act(request, "container.start", container_id):
        held = await context.reading.get(principal, container_id, token_of(request))
        changed = await context.changing.start(principal, held, body)
    return changed_answer(request, changed)


@router.post("/{container_id}/stop")
async def stop_container(request: Request, container_id: str) -> Response:
    """End what runs and keep the container."""
    context, principal = context_of(request), principal_of(request)
    async with Act(request, "container.stop", container_id):
        held = await context.reading.get(principal, container_id, token_of(request))
        changed = await context.changing.stop(held)
    return changed_answer(request, changed)


@router.post("/{container_id}/auto-update")
async def follow_releases(request: Request, container_id: str, body: AutoUpdate) -> Response:
    """Switch automatic updates on or off."""
    context, principal = context_of(request), principal_of(request)
    async with Act(request, "container.auto-update", container_id):
        held = await context.reading.get(principal, container_id, token_of(request))
        changed = await context.changing.follow(held, wanted=body.auto_update)
    return changed_answer(request, changed)


@router.post("/{container_id}/github-connection")
async def connect_repository(request: Request, container_id: str, body: Connection) -> Response:
    """Let the webhooks of the repository act on the container, or not."""
    context, principal = context_of(request), principal_of(request)
    async with Act(request, "container.github-connection", container_id):
        held = await context.reading.get(principal, container_id, token_of(request))
        changed = await context.changing.connect(held, wanted=body.wanted)
    return changed_answer(request, changed)


@router.get("/{container_id}/update")
async def get_update(request: Request, container_id: str) -> Response:
    """Answer the update of a container."""
    held = await context_of(request).reading.get(
        principal_of(request), container_id, token_of(request)
    )
    return answer(update_record(held.container))


@router.get("/{container_id}/measurement")
async def get_measurement(request: Request, container_id: str) -> Response:
    """Answer what identifies the enclave that serves."""
    context = context_of(request)
    held = await context.reading.get(principal_of(request), container_id, token_of(request))
    return answer(await context.measuring.of(held))


@router.post("/{container_id}/update/accept")
async def accept_update(request: Request, container_id: str) -> Response:
    """Let the staged update take over."""
    context, principal = context_of(request), principal_of(request)
    async with Act(request, "container.update.accept", container_id):
        held = await context.reading.get(principal, container_id, token_of(request))
        changed = await context.changing.accept(held)
    return changed_answer(request, changed)


@router.post("/{container_id}/update/cancel", status_code=204)
async def cancel_update(request: Request, container_id: str) -> Response:
    """Go back to what served before the update."""
    context, principal = context_of(request), principal_of(request)
    async with Act(request, "container.update.cancel", container_id, success=204):
        held = await context.reading.get(principal, container_id, token_of(request))
        changed = await context.changing.cancel(held)
    return Response(status_code=204, headers={TOKEN: changed.version})
