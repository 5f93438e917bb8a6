"""/api/containers (spec, "Containers"; client contract, section 1)."""

from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from cloister_api.auth.authenticator import Principal
from cloister_api.cache import CachedContainer
from cloister_api.context import Context
from cloister_api.records.container import record, update_record
from cloister_api.routes.dependencies import (
    NO_FIELDS,
    TOKEN,
    Act,
    answer,
    context_of,
    match_of,
    principal_of,
    retry_key_of,
    token_of,
    window_of,
)
from cloister_api.routes.pagination import Cursor, Limit, piece
from cloister_api.routes.responses import ContainerId, Time, says
from cloister_api.routes.strict import StrictRoute
from cloister_api.schemas.answers import (
    Container,
    ContainerMetrics,
    ContainerUpdate,
    Host,
    Measurement,
    NameVerdict,
    Verdict,
)
from cloister_api.schemas.containers import (
    AutoUpdateRequest,
    CreateContainerRequest,
    GithubConnectionRequest,
    RelaunchRequest,
    ValidateNameRequest,
    ValidateReleaseRequest,
)

__all__ = ["LIST", "router"]

router = APIRouter(prefix="/api/containers", tags=["containers"], route_class=StrictRoute)

NO_CHANGES = RelaunchRequest()
"""An absent body changes nothing."""


def record_of(request: Request, held: CachedContainer) -> dict[str, Any]:
    """Answer the record of a container of the principal's organization."""
    context, principal = context_of(request), principal_of(request)
    return record(
        held,
        principal.organization,
        context.cache.deployment_of(principal.namespace, held.container.spec.repo),
        containers_domain=context.settings.containers_domain,
    )


def changed_answer(request: Request, changed: CachedContainer) -> Response:
    """Answer the record of a container after a change."""
    headers = {TOKEN: changed.version, "etag": f'"{changed.version}"'}
    return answer(record_of(request, changed), headers=headers)


async def to_change(request: Request, container_id: str) -> CachedContainer:
    """Answer the container that a request is to change, in a version that the client agrees to."""
    return await context_of(request).reader.get(
        principal_of(request), container_id, token_of(request), match_of(request)
    )


def order_of(held: CachedContainer) -> tuple[str, ...]:
    """Answer what orders containers: creation, then uid."""
    meta = held.container.metadata
    return (meta.creation_timestamp.isoformat() if meta.creation_timestamp else "", meta.uid)


@router.get("", responses=says(list[Container], 400))
async def list_containers(request: Request, limit: Limit = None, cursor: Cursor = None) -> Response:
    """List the containers of the organization, oldest first."""
    context, principal = context_of(request), principal_of(request)
    held, headers = piece(
        request, await context.reader.all(principal, token_of(request)), order_of, limit, cursor
    )
    return answer(encoded(context, principal, held), headers=headers)


def encoded(context: Context, principal: Principal, held: list[CachedContainer]) -> bytes:
    """Answer the records of containers as JSON."""
    deployments = context.cache.deployments_of(principal.namespace)
    parts = [
        (one, principal.organization, deployments.get(one.container.spec.repo)) for one in held
    ]
    return context.encoder.records(parts)


class ContainerList:
    """The same list, whole and from memory, in plain ASGI: clients poll it."""

    async def __call__(
        self,
        scope: Scope,
        receive: Receive,  # noqa: ARG002 - part of the protocol
        send: Send,
    ) -> None:
        """Answer the containers of the organization, oldest first."""
        context, principal = scope["app"].state.context, scope["state"]["principal"]
        content = encoded(context, principal, context.reader.known(principal))
        headers = [
            (b"content-length", str(len(content)).encode()),
            (b"content-type", b"application/json"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})


LIST = Route("/api/containers", ContainerList(), methods=["GET"])
"""It, for where the framework's own way to it is too long."""


@router.post("", status_code=201, responses=says(Container, 402, 404, 409, status=201))
async def create_container(request: Request, body: CreateContainerRequest) -> Response:
    """Create a container; the same request sent again after no answer finds its own work."""
    context, principal = context_of(request), principal_of(request)
    retry_key = retry_key_of(request)
    async with Act(request, "container.create", body.name, success=201) as act:
        made = await context.creator.create(principal, body, retry_key)
        act.target = made.id
        shown = record_of(request, made)
    headers = {
        "location": f"/api/containers/{made.id}",
        "etag": f'"{made.version}"',
        TOKEN: made.version,
    }
    return answer(shown, 201, headers)


@router.get("/hosts", responses=says(list[Host]))
async def list_hosts(request: Request) -> Response:
    """List the Hosts; clients use it as their log-in check."""
    return answer(context_of(request).validation.hosts())


@router.post("/validate", responses=says(Verdict, 404))
async def validate_release(request: Request, body: ValidateReleaseRequest) -> Response:
    """Judge a release without creating anything."""
    return answer(await context_of(request).validation.release(principal_of(request), body))


@router.post("/validate-name", responses=says(NameVerdict, 404))
async def validate_name(request: Request, body: ValidateNameRequest) -> Response:
    """Answer whether a name can be had."""
    return answer(await context_of(request).validation.name(principal_of(request), body))


@router.get("/{container_id}", responses=says(Container, 400, 404))
async def get_container(request: Request, container_id: ContainerId) -> Response:
    """Answer one container."""
    held = await context_of(request).reader.get(
        principal_of(request), container_id, token_of(request)
    )
    return answer(record_of(request, held), headers={"etag": f'"{held.version}"'})


@router.delete("/{container_id}", status_code=204, responses=says(None, 400, 404, 412, status=204))
async def delete_container(request: Request, container_id: ContainerId) -> Response:
    """Delete a container: gone for readers at once, its name when the teardown ends."""
    context, principal = context_of(request), principal_of(request)
    async with Act(request, "container.delete", container_id, success=204):
        held = await to_change(request, container_id)
        await context.updater.delete(principal, held)
    return Response(status_code=204)


@router.post("/{container_id}/relaunch", responses=says(Container, 402, 404, 409, 412))
async def relaunch_container(
    request: Request, container_id: ContainerId, body: RelaunchRequest = NO_CHANGES
) -> Response:
    """Make a new attempt, with what the body changes."""
    context, principal = context_of(request), principal_of(request)
    async with Act(request, "container.relaunch", container_id):
        held = await to_change(request, container_id)
        changed = await context.updater.relaunch(principal, held, body)
    return changed_answer(request, changed)


@router.post("/{container_id}/start", responses=says(Container, 402, 404, 409, 412))
async def start_container(
    request: Request, container_id: ContainerId, body: RelaunchRequest = NO_CHANGES
) -> Response:
    """Deploy a stopped container again."""
    context, principal = context_of(request), principal_of(request)
    async with Act(request, "container.start", container_id):
        held = await to_change(request, container_id)
        changed = await context.updater.start(principal, held, body)
    return changed_answer(request, changed)


@router.post(
    "/{container_id}/stop", dependencies=NO_FIELDS, responses=says(Container, 404, 409, 412)
)
async def stop_container(request: Request, container_id: ContainerId) -> Response:
    """End what runs and keep the container."""
    context = context_of(request)
    async with Act(request, "container.stop", container_id):
        held = await to_change(request, container_id)
        changed = await context.updater.stop(held)
    return changed_answer(request, changed)


@router.post("/{container_id}/auto-update", responses=says(Container, 404, 409, 412))
async def follow_releases(
    request: Request, container_id: ContainerId, body: AutoUpdateRequest
) -> Response:
    """Switch automatic updates on or off."""
    context = context_of(request)
    async with Act(request, "container.auto-update", container_id):
        held = await to_change(request, container_id)
        changed = await context.updater.follow(held, wanted=body.auto_update)
    return changed_answer(request, changed)


@router.post("/{container_id}/github-connection", responses=says(Container, 404, 409, 412))
async def connect_repository(
    request: Request, container_id: ContainerId, body: GithubConnectionRequest
) -> Response:
    """Let the webhooks of the repository act on the container, or not."""
    context = context_of(request)
    async with Act(request, "container.github-connection", container_id):
        held = await to_change(request, container_id)
        changed = await context.updater.connect(held, wanted=body.wanted)
    return changed_answer(request, changed)


@router.get("/{container_id}/update", responses=says(ContainerUpdate, 400, 404))
async def get_update(request: Request, container_id: ContainerId) -> Response:
    """Answer the update of a container."""
    held = await context_of(request).reader.get(
        principal_of(request), container_id, token_of(request)
    )
    return answer(update_record(held.container))


@router.get("/{container_id}/measurement", responses=says(Measurement, 400, 404))
async def get_measurement(request: Request, container_id: ContainerId) -> Response:
    """Answer what identifies the enclave that serves."""
    context = context_of(request)
    held = await context.reader.get(principal_of(request), container_id, token_of(request))
    return answer(await context.measurements.of(held))


@router.get("/{container_id}/metrics", responses=says(ContainerMetrics, 400, 404))
async def get_metrics(request: Request, container_id: ContainerId, time: Time = "24h") -> Response:
    """Answer the utilization of what serves over time."""
    context = context_of(request)
    window = window_of(time)
    held = await context.reader.get(principal_of(request), container_id, token_of(request))
    return answer(await context.utilization.of(held.id, window, context.clock()))


@router.post(
    "/{container_id}/update/accept",
    dependencies=NO_FIELDS,
    responses=says(Container, 404, 409, 412),
)
async def accept_update(request: Request, container_id: ContainerId) -> Response:
    """Let the staged update take over."""
    context = context_of(request)
    async with Act(request, "container.update.accept", container_id):
        held = await to_change(request, container_id)
        changed = await context.updater.accept(held)
    return changed_answer(request, changed)


@router.post(
    "/{container_id}/update/cancel",
    status_code=204,
    dependencies=NO_FIELDS,
    responses=says(None, 404, 409, 412, status=204),
)
async def cancel_update(request: Request, container_id: ContainerId) -> Response:
    """Go back to what served before the update."""
    context = context_of(request)
    async with Act(request, "container.update.cancel", container_id, success=204):
        held = await to_change(request, container_id)
        changed = await context.updater.cancel(held)
    return Response(status_code=204, headers={TOKEN: changed.version})
