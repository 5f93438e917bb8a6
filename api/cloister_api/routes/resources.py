"""/api/secrets, /ssh-keys, /domains, /registry-credentials and /deployments (spec 7, 8, 23, 24)."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from cloister_api.routes.audit import AuditedAction
from cloister_api.routes.dependencies import (
    NO_FIELDS,
    StrictRoute,
    context_of,
    principal_of,
    record_response,
)
from cloister_api.routes.parameters import (
    ETAG,
    LINK,
    LOCATION,
    Cursor,
    DeploymentId,
    IdempotencyKey,
    IfMatch,
    Include,
    Limit,
    Name,
    checked_idempotency_key,
    paginate,
    responses,
)
from cloister_api.schemas.resources import (
    ChangeDeploymentRequest,
    CreateDomainRequest,
    CreateSecretRequest,
    CreateSshKeyRequest,
    DeploymentResponse,
    DeploymentResultsResponse,
    DomainResponse,
    PutRegistryCredentialsRequest,
    RegistryCredentialsResponse,
    RegistryStatusResponse,
    SecretResponse,
    SshKeyResponse,
    UpdateDeploymentRequest,
    UpdateSecretRequest,
)
from cloister_api.wire import JsonResponse

SecretName = Annotated[str, Path(description="Its name, or its `id`.", min_length=1)]

secrets_router = APIRouter(prefix="/api/secrets", tags=["secrets"], route_class=StrictRoute)


def sort_key(record: SecretResponse) -> tuple[str, ...]:
    """Return what orders secrets."""
    return (record.name, record.repo or "")


@secrets_router.get("", responses=responses(400, headers=(LINK,)))
async def list_secrets(
    request: Request, limit: Limit = None, cursor: Cursor = None
) -> JsonResponse[list[SecretResponse]]:
    """List the secrets of the organization; values are never in a response."""
    records = context_of(request).related.secrets.all(principal_of(request))
    page, headers = paginate(request, records, sort_key, limit, cursor)
    return JsonResponse(page, headers=headers)


@secrets_router.post(
    "", status_code=201, responses=responses(409, status=201, headers=(LOCATION, ETAG))
)
async def create_secret(
    request: Request, body: CreateSecretRequest, key: IdempotencyKey = None
) -> JsonResponse[SecretResponse]:
    """Create a secret."""
    retry_key = checked_idempotency_key(key)
    async with AuditedAction(request, "secret.create", body.name, success=201) as action:
        made = await context_of(request).related.secrets.create(
            principal_of(request), body, retry_key
        )
        action.target = made.record.id
    # Other repositories may have a secret of the name.
    address = made.record.id if made.record.repo else body.name
    return record_response(made, 201, location=f"/api/secrets/{address}")


@secrets_router.get("/{name}", responses=responses(404, 409, headers=(ETAG,)))
async def get_secret(request: Request, name: SecretName) -> JsonResponse[SecretResponse]:
    """Return the metadata of a secret and who uses it."""
    return record_response(context_of(request).related.secrets.one(principal_of(request), name))


@secrets_router.put("/{name}", responses=responses(404, 409, 412, headers=(ETAG,)))
async def update_secret(
    request: Request, name: SecretName, body: UpdateSecretRequest, match: IfMatch = None
) -> JsonResponse[SecretResponse]:
    """Write a new value; containers get it at their next deploy."""
    async with AuditedAction(request, "secret.update", name):
        written = await context_of(request).related.secrets.update(
            principal_of(request), name, body.value, match
        )
    return record_response(written)


@secrets_router.delete("/{name}", status_code=204, responses=responses(404, 409, 412, status=204))
async def delete_secret(request: Request, name: SecretName, match: IfMatch = None) -> Response:
    """Delete a secret that nobody uses."""
    async with AuditedAction(request, "secret.delete", name, success=204):
        await context_of(request).related.secrets.delete(principal_of(request), name, match)
    return Response(status_code=204)


ssh_keys_router = APIRouter(prefix="/api/ssh-keys", tags=["SSH keys"], route_class=StrictRoute)


@ssh_keys_router.get("", responses=responses(400, headers=(LINK,)))
async def list_ssh_keys(
    request: Request, limit: Limit = None, cursor: Cursor = None
) -> JsonResponse[list[SshKeyResponse]]:
    """List the SSH keys of the organization."""
    records = context_of(request).related.ssh_keys.all(principal_of(request))
    page, headers = paginate(request, records, lambda each: (each.name,), limit, cursor)
    return JsonResponse(page, headers=headers)


@ssh_keys_router.post(
    "", status_code=201, responses=responses(409, status=201, headers=(LOCATION, ETAG))
)
async def create_ssh_key(
    request: Request, body: CreateSshKeyRequest, key: IdempotencyKey = None
) -> JsonResponse[SshKeyResponse]:
    """Register an SSH key."""
    retry_key = checked_idempotency_key(key)
    async with AuditedAction(request, "ssh-key.create", body.name, success=201) as action:
        made = await context_of(request).related.ssh_keys.create(
            principal_of(request), body, retry_key
        )
        action.target = made.record.id
    return record_response(made, 201, location=f"/api/ssh-keys/{body.name}")


@ssh_keys_router.delete("/{name}", status_code=204, responses=responses(404, 409, 412, status=204))
async def delete_ssh_key(request: Request, name: Name, match: IfMatch = None) -> Response:
    """Delete an SSH key that nobody uses."""
    async with AuditedAction(request, "ssh-key.delete", name, success=204):
        await context_of(request).related.ssh_keys.delete(principal_of(request), name, match)
    return Response(status_code=204)


domains_router = APIRouter(prefix="/api/domains", tags=["domains"], route_class=StrictRoute)


@domains_router.get("", responses=responses(400, headers=(LINK,)))
async def list_domains(
    request: Request, limit: Limit = None, cursor: Cursor = None
) -> JsonResponse[list[DomainResponse]]:
    """List the custom domains of the organization."""
    records = context_of(request).related.domains.all(principal_of(request))
    page, headers = paginate(request, records, lambda each: (each.domain,), limit, cursor)
    return JsonResponse(page, headers=headers)


@domains_router.post(
    "", status_code=201, responses=responses(409, status=201, headers=(LOCATION, ETAG))
)
async def create_domain(
    request: Request, body: CreateDomainRequest, key: IdempotencyKey = None
) -> JsonResponse[DomainResponse]:
    """Register a custom domain."""
    retry_key = checked_idempotency_key(key)
    async with AuditedAction(request, "domain.create", body.domain, success=201) as action:
        made = await context_of(request).related.domains.create(
            principal_of(request), body, retry_key
        )
        action.target = made.record.id
    return record_response(made, 201, location=f"/api/domains/{body.domain}")


@domains_router.post(
    "/{domain}/verify", dependencies=NO_FIELDS, responses=responses(404, 412, headers=(ETAG,))
)
async def verify_domain(
    request: Request, domain: Name, match: IfMatch = None
) -> JsonResponse[DomainResponse]:
    """Check the DNS records of a domain now."""
    async with AuditedAction(request, "domain.verify", domain, success=200):
        verified = await context_of(request).related.domains.verify(
            principal_of(request), domain, match
        )
    return record_response(verified)


@domains_router.delete("/{domain}", status_code=204, responses=responses(404, 409, 412, status=204))
async def delete_domain(request: Request, domain: Name, match: IfMatch = None) -> Response:
    """Delete a custom domain that nobody uses."""
    async with AuditedAction(request, "domain.delete", domain, success=204):
        await context_of(request).related.domains.delete(principal_of(request), domain, match)
    return Response(status_code=204)


registry_credentials_router = APIRouter(
    prefix="/api/registry-credentials", tags=["registry credentials"], route_class=StrictRoute
)

Registry = Annotated[
    str,
    Path(description="Which one.", json_schema_extra={"enum": ["ghcr", "gcr", "dockerhub"]}),
]


@registry_credentials_router.get("", responses=responses())
async def list_credentials(request: Request) -> JsonResponse[RegistryCredentialsResponse]:
    """Return the status of each registry; an object, not a list."""
    credentials = context_of(request).related.registry_credentials
    return JsonResponse(credentials.all(principal_of(request)))


@registry_credentials_router.put("/{registry}", responses=responses(404, 409, 412, headers=(ETAG,)))
async def put_credentials(
    request: Request,
    registry: Registry,
    body: PutRegistryCredentialsRequest,
    match: IfMatch = None,
) -> JsonResponse[RegistryStatusResponse]:
    """Create or replace the credentials of a registry."""
    async with AuditedAction(request, "registry-credential.put", registry):
        put = await context_of(request).related.registry_credentials.put(
            principal_of(request), registry, body, match
        )
    return record_response(put)


@registry_credentials_router.delete(
    "/{registry}", status_code=204, responses=responses(404, 409, 412, status=204)
)
async def delete_credentials(
    request: Request, registry: Registry, match: IfMatch = None
) -> Response:
    """Delete the credentials of a registry."""
    async with AuditedAction(request, "registry-credential.delete", registry, success=204):
        await context_of(request).related.registry_credentials.delete(
            principal_of(request), registry, match
        )
    return Response(status_code=204)


deployments_router = APIRouter(
    prefix="/api/deployments", tags=["deployments"], route_class=StrictRoute
)


@deployments_router.get("", responses=responses(400, headers=(LINK,)))
async def list_deployments(
    request: Request, limit: Limit = None, cursor: Cursor = None, include: Include = None
) -> JsonResponse[list[DeploymentResponse]]:
    """List the deployments of the organization, by repository."""
    records = context_of(request).related.deployments.all(
        principal_of(request), with_replaced=include is not None
    )
    kept = {"include": include}
    page, headers = paginate(request, records, lambda each: (each.repo,), limit, cursor, kept)
    return JsonResponse(page, headers=headers)


@deployments_router.patch("/{deployment_id}", responses=responses(404, 409, 412, headers=(ETAG,)))
async def change_deployment(
    request: Request,
    deployment_id: DeploymentId,
    body: ChangeDeploymentRequest,
    match: IfMatch = None,
) -> JsonResponse[DeploymentResponse]:
    """Change whether updates wait where a container says nothing."""
    async with AuditedAction(request, "deployment.change", deployment_id):
        changed = await context_of(request).related.deployments.change(
            principal_of(request),
            deployment_id,
            default_staging=body.default_staging,
            match=match,
        )
    return record_response(changed)


@deployments_router.post("/{deployment_id}/update", responses=responses(402, 404, 412))
async def update_deployment(
    request: Request,
    deployment_id: DeploymentId,
    body: UpdateDeploymentRequest,
    match: IfMatch = None,
) -> JsonResponse[DeploymentResultsResponse]:
    """Bring a tag to the containers of a deployment."""
    async with AuditedAction(request, "deployment.update", deployment_id):
        results = await context_of(request).related.deployments.update(
            principal_of(request), deployment_id, body, match
        )
    return JsonResponse(DeploymentResultsResponse(results=results))
