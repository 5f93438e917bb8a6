"""/api/containers (spec 6, 21, 22), with the status and the events of one."""

from collections.abc import Mapping, Sequence

from fastapi import APIRouter, Request, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from cloister_api.auth.authenticator import Principal
from cloister_api.cache import CachedContainer
from cloister_api.context import Context
from cloister_api.records.container import (
    NO_LINKS,
    ReplacementLinks,
    container_record,
    not_replaced,
    replacement_links,
    update_record,
)
from cloister_api.routes.audit import AuditedAction
from cloister_api.routes.dependencies import NO_FIELDS, StrictRoute, context_of, principal_of
from cloister_api.routes.parameters import (
    CONSISTENCY_TOKEN,
    ETAG,
    LINK,
    LOCATION,
    ConsistencyToken,
    ContainerId,
    Cursor,
    IdempotencyKey,
    Include,
    Limit,
    Time,
    VersionHeaders,
    Versions,
    checked_idempotency_key,
    paginate,
    responses,
    window_of,
)
from cloister_api.schemas.comparison_responses import UpdateDiffResponse
from cloister_api.schemas.container_responses import (
    ContainerMetricsResponse,
    ContainerResponse,
    ContainerStatusResponse,
    ContainerUpdateResponse,
    EventResponse,
    HostResponse,
    MeasurementResponse,
    NameVerdictResponse,
    ReleaseVerdictResponse,
)
from cloister_api.schemas.containers import (
    AutoUpdateRequest,
    CreateContainerRequest,
    GithubConnectionRequest,
    RelaunchRequest,
    ValidateNameRequest,
    ValidateReleaseRequest,
)
from cloister_api.wire import JsonResponse
from cloister_crds.kinds import Deployment, Organization

router = APIRouter(prefix="/api/containers", tags=["containers"], route_class=StrictRoute)

NO_CHANGES = RelaunchRequest()
"""An absent body changes nothing."""


CHANGED = (CONSISTENCY_TOKEN, ETAG)
"""Headers of a container after a change."""


def record_of(request: Request, cached: CachedContainer) -> ContainerResponse:
    """Return the record of a container of the principal's organization."""
    context, principal = context_of(request), principal_of(request)
    links = replacement_links(context.reader.known(principal))
    return shown_record(context, principal, cached, links)


def shown_record(
    context: Context,
    principal: Principal,
    cached: CachedContainer,
    links: Mapping[str, ReplacementLinks],
) -> ContainerResponse:
    """Return the record of a container."""
    return shown_records(context, principal, [cached], links)[0]


def shown_records(
    context: Context,
    principal: Principal,
    containers: Sequence[CachedContainer],
    links: Mapping[str, ReplacementLinks],
) -> list[ContainerResponse]:
    """Return the records of containers of the principal's organization, in their order."""
    return [
        container_record(cached, organization, deployment, context.records, own)
        for cached, organization, deployment, own in record_parts(
            context, principal, containers, links
        )
    ]


def record_parts(
    context: Context,
    principal: Principal,
    containers: Sequence[CachedContainer],
    links: Mapping[str, ReplacementLinks],
) -> list[tuple[CachedContainer, Organization, Deployment | None, ReplacementLinks]]:
    """Return what the records of containers follow from."""
    deployments = context.cache.deployments_of(principal.namespace)
    key = context.cache.repositories.key
    return [
        (
            each,
            principal.organization,
            deployments.get(key(each.container.spec.repo)),
            links.get(each.container.metadata.uid, NO_LINKS),
        )
        for each in containers
    ]


def changed_response(request: Request, changed: CachedContainer) -> JsonResponse[ContainerResponse]:
    """Build the response of a container after a change."""
    headers = {CONSISTENCY_TOKEN.name: changed.version, "etag": f'"{changed.version}"'}
    return JsonResponse(record_of(request, changed), headers=headers)


async def container_to_change(
    request: Request, container_id: str, versions: VersionHeaders
) -> CachedContainer:
    """Return the container to change, in a version that the client agrees to change."""
    return await context_of(request).reader.get(
        principal_of(request), container_id, versions.token, versions.match
    )


def sort_key(cached: CachedContainer) -> tuple[str, ...]:
    """Return what orders containers: creation, then uid."""
    meta = cached.container.metadata
    return (meta.creation_timestamp.isoformat() if meta.creation_timestamp else "", meta.uid)


@router.get("", responses=responses(400, headers=(LINK,)))
async def list_containers(
    request: Request,
    limit: Limit = None,
    cursor: Cursor = None,
    include: Include = None,
    token: ConsistencyToken = None,
) -> JsonResponse[list[ContainerResponse]]:
    """List the containers of the organization that no other one is replacing, oldest first."""
    context, principal = context_of(request), principal_of(request)
    everything = await context.reader.all(principal, token)
    links = replacement_links(everything)
    listed = not_replaced(everything, links) if include is None else everything
    page, headers = paginate(request, listed, sort_key, limit, cursor, {"include": include})
    return JsonResponse.encoded(encoded(context, principal, page, links), headers)


def encoded(
    context: Context,
    principal: Principal,
    page: list[CachedContainer],
    links: Mapping[str, ReplacementLinks],
) -> bytes:
    """Return the records of containers as JSON."""
    return context.record_cache.records(record_parts(context, principal, page, links))


class ContainerList:
    """The same list, whole and from the cache, in plain ASGI: clients poll it."""

    async def __call__(
        self,
        scope: Scope,
        receive: Receive,  # noqa: ARG002 - part of the protocol
        send: Send,
    ) -> None:
        """Send the containers of the organization that no other one is replacing, oldest first."""
        context, principal = scope["app"].state.context, scope["state"]["principal"]
        everything = context.reader.known(principal)
        links = replacement_links(everything)
        content = encoded(context, principal, not_replaced(everything, links), links)
        headers = [
            (b"content-length", str(len(content)).encode()),
            (b"content-type", b"application/json"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})


LIST = Route("/api/containers", ContainerList(), methods=["GET"])
"""Its route, for the guard, which takes it past the framework."""


@router.post(
    "",
    status_code=201,
    responses=responses(402, 404, 409, status=201, headers=(LOCATION, *CHANGED)),
)
async def create_container(
    request: Request, body: CreateContainerRequest, key: IdempotencyKey = None
) -> JsonResponse[ContainerResponse]:
    """Create a container; the same request sent again after a lost response finds its own work."""
    context, principal = context_of(request), principal_of(request)
    retry_key = checked_idempotency_key(key)
    async with AuditedAction(request, "container.create", body.name, success=201) as action:
        made = await context.creator.create(principal, body, retry_key)
        action.target = made.id
        record = record_of(request, made)
    headers = {
        "location": f"/api/containers/{made.id}",
        "etag": f'"{made.version}"',
        CONSISTENCY_TOKEN.name: made.version,
    }
    return JsonResponse(record, 201, headers)


@router.get("/hosts", responses=responses())
async def list_hosts(request: Request) -> JsonResponse[list[HostResponse]]:
    """List the Hosts; clients use it as their log-in check."""
    return JsonResponse(context_of(request).validation.hosts())


@router.post("/validate", responses=responses(404))
async def validate_release(
    request: Request, body: ValidateReleaseRequest
) -> JsonResponse[ReleaseVerdictResponse]:
    """Judge a release without creating anything."""
    return JsonResponse(await context_of(request).validation.release(principal_of(request), body))


@router.post("/validate-name", responses=responses(404))
async def validate_name(
    request: Request, body: ValidateNameRequest
) -> JsonResponse[NameVerdictResponse]:
    """Return whether a name can be had."""
    return JsonResponse(await context_of(request).validation.name(principal_of(request), body))


@router.get("/{container_id}", responses=responses(400, 404, headers=(ETAG,)))
async def get_container(
    request: Request, container_id: ContainerId, token: ConsistencyToken = None
) -> JsonResponse[ContainerResponse]:
    """Return one container."""
    held = await context_of(request).reader.get(principal_of(request), container_id, token)
    return JsonResponse(record_of(request, held), headers={"etag": f'"{held.version}"'})


@router.delete(
    "/{container_id}", status_code=204, responses=responses(400, 404, 409, 412, status=204)
)
async def delete_container(
    request: Request, container_id: ContainerId, versions: Versions
) -> Response:
    """Delete a container: it is gone immediately, its name is free after the teardown."""
    context, principal = context_of(request), principal_of(request)
    async with AuditedAction(request, "container.delete", container_id, success=204):
        held = await container_to_change(request, container_id, versions)
        await context.updater.delete(principal, held)
    return Response(status_code=204)


@router.post("/{container_id}/relaunch", responses=responses(402, 404, 409, 412, headers=CHANGED))
async def relaunch_container(
    request: Request,
    container_id: ContainerId,
    versions: Versions,
    body: RelaunchRequest = NO_CHANGES,
) -> JsonResponse[ContainerResponse]:
    """Make a new attempt, with what the body changes."""
    context, principal = context_of(request), principal_of(request)
    async with AuditedAction(request, "container.relaunch", container_id):
        held = await container_to_change(request, container_id, versions)
        changed = await context.updater.relaunch(principal, held, body)
    return changed_response(request, changed)


@router.post("/{container_id}/start", responses=responses(402, 404, 409, 412, headers=CHANGED))
async def start_container(
    request: Request,
    container_id: ContainerId,
    versions: Versions,
    body: RelaunchRequest = NO_CHANGES,
) -> JsonResponse[ContainerResponse]:
    """Deploy a stopped container again."""
    context, principal = context_of(request), principal_of(request)
    async with AuditedAction(request, "container.start", container_id):
        held = await container_to_change(request, container_id, versions)
        changed = await context.updater.start(principal, held, body)
    return changed_response(request, changed)


@router.post(
    "/{container_id}/stop",
    dependencies=NO_FIELDS,
    responses=responses(404, 409, 412, headers=CHANGED),
)
async def stop_container(
    request: Request, container_id: ContainerId, versions: Versions
) -> JsonResponse[ContainerResponse]:
    """Stop what runs and keep the container."""
    context = context_of(request)
    async with AuditedAction(request, "container.stop", container_id):
        held = await container_to_change(request, container_id, versions)
        changed = await context.updater.stop(held)
    return changed_response(request, changed)


@router.post("/{container_id}/auto-update", responses=responses(404, 409, 412, headers=CHANGED))
async def follow_releases(
    request: Request, container_id: ContainerId, versions: Versions, body: AutoUpdateRequest
) -> JsonResponse[ContainerResponse]:
    """Switch automatic updates on or off."""
    context = context_of(request)
    async with AuditedAction(request, "container.auto-update", container_id):
        held = await container_to_change(request, container_id, versions)
        changed = await context.updater.follow(held, wanted=body.auto_update)
    return changed_response(request, changed)


@router.post(
    "/{container_id}/github-connection", responses=responses(404, 409, 412, headers=CHANGED)
)
async def connect_repository(
    request: Request,
    container_id: ContainerId,
    versions: Versions,
    body: GithubConnectionRequest,
) -> JsonResponse[ContainerResponse]:
    """Let the webhooks of the repository act on the container, or not."""
    context = context_of(request)
    async with AuditedAction(request, "container.github-connection", container_id):
        held = await container_to_change(request, container_id, versions)
        changed = await context.updater.connect(held, wanted=body.wanted)
    return changed_response(request, changed)


@router.get("/{container_id}/update", responses=responses(400, 404))
async def get_update(
    request: Request, container_id: ContainerId, token: ConsistencyToken = None
) -> JsonResponse[ContainerUpdateResponse]:
    """Return the update of a container."""
    held = await context_of(request).reader.get(principal_of(request), container_id, token)
    return JsonResponse(update_record(held.container))


@router.get("/{container_id}/update/diff", responses=responses(400, 404))
async def get_update_diff(
    request: Request, container_id: ContainerId, token: ConsistencyToken = None
) -> JsonResponse[UpdateDiffResponse]:
    """Return what an update changes, field by field, against what serves."""
    context = context_of(request)
    held = await context.reader.get(principal_of(request), container_id, token)
    return JsonResponse(await context.update_diffs.of(held))


@router.get("/{container_id}/measurement", responses=responses(400, 404))
async def get_measurement(
    request: Request, container_id: ContainerId, token: ConsistencyToken = None
) -> JsonResponse[MeasurementResponse]:
    """Return what identifies the enclave that serves."""
    context = context_of(request)
    held = await context.reader.get(principal_of(request), container_id, token)
    return JsonResponse(await context.measurements.of(held))


@router.get("/{container_id}/metrics", responses=responses(400, 404))
async def get_metrics(
    request: Request,
    container_id: ContainerId,
    time: Time = "24h",
    token: ConsistencyToken = None,
) -> JsonResponse[ContainerMetricsResponse]:
    """Return the utilization of what serves over time."""
    context = context_of(request)
    window = window_of(time)
    principal = principal_of(request)
    held = await context.reader.get(principal, container_id, token)
    series = (principal.organization_id, held.id)
    return JsonResponse(await context.utilization.of(series, window, context.clock()))


@router.post(
    "/{container_id}/update/accept",
    dependencies=NO_FIELDS,
    responses=responses(404, 409, 412, headers=CHANGED),
)
async def accept_update(
    request: Request, container_id: ContainerId, versions: Versions
) -> JsonResponse[ContainerResponse]:
    """Promote the staged update."""
    context = context_of(request)
    async with AuditedAction(request, "container.update.accept", container_id):
        held = await container_to_change(request, container_id, versions)
        changed = await context.updater.accept(held)
    return changed_response(request, changed)


@router.post(
    "/{container_id}/update/cancel",
    status_code=204,
    dependencies=NO_FIELDS,
    responses=responses(404, 409, 412, status=204, headers=(CONSISTENCY_TOKEN,)),
)
async def cancel_update(
    request: Request, container_id: ContainerId, versions: Versions
) -> Response:
    """Go back to what served before the update."""
    context = context_of(request)
    async with AuditedAction(request, "container.update.cancel", container_id, success=204):
        held = await container_to_change(request, container_id, versions)
        changed = await context.updater.cancel(held)
    return Response(status_code=204, headers={CONSISTENCY_TOKEN.name: changed.version})


@router.get("/{container_id}/status", responses=responses(400, 404, headers=(ETAG,)))
async def get_status(
    request: Request, container_id: ContainerId, token: ConsistencyToken = None
) -> JsonResponse[ContainerStatusResponse]:
    """Return how a container is: conditions, what serves, what is on its way."""
    context = context_of(request)
    held = await context.reader.get(principal_of(request), container_id, token)
    record, version = context.statuses.of(held)
    return JsonResponse(record, headers={"etag": version})


@router.get("/{container_id}/events", responses=responses(400, 404))
async def list_events(
    request: Request, container_id: ContainerId, token: ConsistencyToken = None
) -> JsonResponse[list[EventResponse]]:
    """List what happened to a container in the last hour, newest first, at most 100 entries."""
    context = context_of(request)
    held = await context.reader.get(principal_of(request), container_id, token)
    return JsonResponse(await context.statuses.events(held))
