"""Secrets, SSH keys, domains, registries and deployments of an organization."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloister_api.auth.authenticator import Principal
from cloister_api.auth.roles import RoleRight
from cloister_api.context import Context, RelatedServices
from cloister_api.dashboard.pages.containers import rows_of
from cloister_api.dashboard.pages.requests import (
    Again,
    change,
    context_of,
    principal_of,
    render,
    submit,
)
from cloister_api.dashboard.rendering import Form
from cloister_api.dashboard.rows import domain_rows
from cloister_api.errors import ApiError, not_found
from cloister_api.records.container import not_replaced, replacement_links
from cloister_api.routes.audit import AuditedWrite
from cloister_api.schemas.resources import (
    CreateDomainRequest,
    CreateSecretRequest,
    CreateSshKeyRequest,
    DeploymentResponse,
    DeploymentResult,
    PutRegistryCredentialsRequest,
    UpdateDeploymentRequest,
    UpdateSecretRequest,
)

Service = Callable[[RelatedServices], Any]
Endpoint = Callable[[Request], Awaitable[Response]]


def showing(page: Callable[[Request, Form], Awaitable[Response]]) -> Endpoint:
    """Return the endpoint of a page on which nothing is typed yet."""

    async def show(request: Request) -> Response:
        return await page(request, Form.fresh())

    return show


def creating(action: str, page: Again, of: Service, body: Callable[[Form], Any]) -> Endpoint:
    """Return the endpoint of the form that creates something of a service.

    Parameters
    ----------
    body
        Returns the body of the same request to the REST API.
    """

    async def create(request: Request) -> Response:
        async def do(context: Context, principal: Principal, form: Form) -> str:
            made = await of(context.related).create(principal, body(form), form.retry)
            return str(made.record.id)

        then = request.url.path.rpartition("/")[2]
        return await change(request, action, "", do, page, then=then, success=201)

    return create


def deleting(action: str, page: Again, of: Service) -> Endpoint:
    """Return the endpoint of the form that deletes something of a service that nobody uses."""

    async def delete(request: Request) -> Response:
        name = request.path_params["name"]

        async def do(context: Context, principal: Principal, _: Form) -> None:
            await of(context.related).delete(principal, name, None)

        then = request.url.path.split("/")[-3]
        return await change(request, action, name, do, page, then=then, success=204)

    return delete


SECRETS_PAGE = "secrets"


async def show_secrets(request: Request) -> Response:
    """Show the secrets; the address may suggest the name and the repository of a new one."""
    suggested = {name: request.query_params.get(name, "") for name in ("name", "repo")}
    return await secret_page(request, Form.fresh(**suggested))


async def secret_page(request: Request, form: Form, problem: ApiError | None = None) -> Response:
    """Return the page with what was typed, and why that was not done."""
    return render(
        request,
        "secrets.html",
        problem=problem,
        typed=form,
        secrets=context_of(request).related.secrets.all(principal_of(request)),
        parts=("secrets", "containers"),
    )


async def update_secret(request: Request) -> Response:
    """Write a new value of a secret."""
    name = request.path_params["name"]

    async def do(context: Context, principal: Principal, form: Form) -> None:
        body = UpdateSecretRequest(value=form.whole("value"))
        await context.related.secrets.update(principal, name, body.value, None)

    return await change(request, "secret.update", name, do, secret_page, then=SECRETS_PAGE)


create_secret = creating(
    "secret.create",
    secret_page,
    lambda related: related.secrets,
    lambda form: CreateSecretRequest(
        name=form.get("name"), value=form.whole("value"), repo=form.get("repo") or None
    ),
)
delete_secret = deleting("secret.delete", secret_page, lambda related: related.secrets)
SECRET_ROUTES = (
    Route("/o/{slug}/secrets", show_secrets),
    Route("/o/{slug}/secrets", create_secret, methods=["POST"]),
    Route("/o/{slug}/secrets/{name}/update", update_secret, methods=["POST"]),
    Route("/o/{slug}/secrets/{name}/delete", delete_secret, methods=["POST"]),
)
"""Routes of the module."""


async def ssh_key_page(request: Request, form: Form, problem: ApiError | None = None) -> Response:
    """Return the page with what was typed, and why that was not done."""
    return render(
        request,
        "ssh_keys.html",
        problem=problem,
        typed=form,
        keys=context_of(request).related.ssh_keys.all(principal_of(request)),
        parts=("ssh-keys", "containers"),
    )


create_ssh_key = creating(
    "ssh-key.create",
    ssh_key_page,
    lambda related: related.ssh_keys,
    lambda form: CreateSshKeyRequest(name=form.get("name"), public_key=form.get("public_key")),
)
delete_ssh_key = deleting("ssh-key.delete", ssh_key_page, lambda related: related.ssh_keys)
SSH_KEY_ROUTES = (
    Route("/o/{slug}/ssh-keys", showing(ssh_key_page)),
    Route("/o/{slug}/ssh-keys", create_ssh_key, methods=["POST"]),
    Route("/o/{slug}/ssh-keys/{name}/delete", delete_ssh_key, methods=["POST"]),
)
"""Routes of the module."""


DOMAIN_PAGE = "domains"


async def domain_page(request: Request, form: Form, problem: ApiError | None = None) -> Response:
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


async def verify_domain(request: Request) -> Response:
    """Look at the records of a domain now."""
    domain = request.path_params["name"]

    async def do(context: Context, principal: Principal, _: Form) -> None:
        await context.related.domains.verify(principal, domain, None)

    return await change(request, "domain.verify", domain, do, domain_page, then=DOMAIN_PAGE)


create_domain = creating(
    "domain.create",
    domain_page,
    lambda related: related.domains,
    lambda form: CreateDomainRequest(domain=form.get("domain")),
)
delete_domain = deleting("domain.delete", domain_page, lambda related: related.domains)
DOMAIN_ROUTES = (
    Route("/o/{slug}/domains", showing(domain_page)),
    Route("/o/{slug}/domains", create_domain, methods=["POST"]),
    Route("/o/{slug}/domains/{name}/verify", verify_domain, methods=["POST"]),
    Route("/o/{slug}/domains/{name}/delete", delete_domain, methods=["POST"]),
)
"""Routes of the module."""


REGISTRY_PAGE = "registries"


async def registry_page(request: Request, form: Form, problem: ApiError | None = None) -> Response:
    """Return the page with what was typed, and why that was not done."""
    principal = principal_of(request)
    entitled = principal.organization.spec.entitlements.private_registries
    registries = context_of(request).related.registry_credentials
    return render(
        request,
        "registries.html",
        problem=problem,
        typed=form,
        chosen=request.path_params.get("name", ""),
        statuses=dict(registries.all(principal)) if entitled else {},
        parts=("registries", "organization"),
    )


async def put_registry(request: Request) -> Response:
    """Write credentials."""
    registry = request.path_params["name"]

    async def do(context: Context, principal: Principal, form: Form) -> None:
        body = PutRegistryCredentialsRequest(
            username=form.get("username") or None,
            token=form.get("token") or None,
            key=form.get("key") or None,
        )
        await context.related.registry_credentials.put(principal, registry, body, None)

    return await change(
        request, "registry-credential.put", registry, do, registry_page, then=REGISTRY_PAGE
    )


delete_registry = deleting(
    "registry-credential.delete", registry_page, lambda related: related.registry_credentials
)
REGISTRY_ROUTES = (
    Route("/o/{slug}/registries", showing(registry_page)),
    Route("/o/{slug}/registries/{name}", put_registry, methods=["POST"]),
    Route("/o/{slug}/registries/{name}/delete", delete_registry, methods=["POST"]),
)
"""Routes of the module."""


INSTANCE = "instance:"
"""First part of the names of boxes."""


async def deployments(request: Request) -> Response:
    """Show the deployments."""
    found = context_of(request).related.deployments.all(principal_of(request), with_replaced=False)
    parts = ("deployments", "containers")
    return render(request, "deployments.html", deployments=found, parts=parts)


def deployment_named(context: Context, principal: Principal, identifier: str) -> DeploymentResponse:
    """Return a deployment of the organization.

    Raises
    ------
    ApiError
        404 when it has no such one.
    """
    for each in context.related.deployments.all(principal, with_replaced=False):
        if str(each.id) == identifier:
            return each
    raise not_found("deployment")


async def deployment_page(
    request: Request,
    form: Form,
    problem: ApiError | None = None,
    results: list[DeploymentResult] | None = None,
) -> Response:
    """Return the page with what was typed, why that was not done, or what came of it."""
    context, principal = context_of(request), principal_of(request)
    deployment = deployment_named(context, principal, request.path_params["id"])
    same = context.cache.repositories.same
    everything = await context.reader.all(principal, request.query_params.get("seen"))
    links = replacement_links(everything)
    listed = [
        each
        for each in not_replaced(everything, links)
        if same(each.container.spec.repo, deployment.repo)
    ]
    return render(
        request,
        "deployment.html",
        problem=problem,
        typed=form,
        deployment=deployment,
        rows=rows_of(request, listed, links),
        results=results,
        parts=("deployments", "containers"),
    )


async def change_deployment(request: Request) -> Response:
    """Change whether updates wait where a container says nothing."""
    identifier = request.path_params["id"]

    async def write(form: Form, _: AuditedWrite) -> str:
        principal = principal_of(request)
        await context_of(request).related.deployments.change(
            principal, identifier, default_staging=form.get("staging") == "on", match=None
        )
        return f"/o/{principal.slug}/deployments/{identifier}"

    return await submit(
        request, "deployment.change", identifier, write, deployment_page, right=RoleRight.DEPLOY
    )


async def update_deployment(request: Request) -> Response:
    """Bring a tag to the chosen containers, and show what came of each."""
    identifier = request.path_params["id"]

    async def write(form: Form, _: AuditedWrite) -> Response:
        principal = principal_of(request)
        results = await context_of(request).related.deployments.update(
            principal, identifier, update_of(form), None
        )
        return await deployment_page(request, Form.fresh(), results=results)

    return await submit(
        request, "deployment.update", identifier, write, deployment_page, right=RoleRight.DEPLOY
    )


def update_of(form: Form) -> UpdateDeploymentRequest:
    """Return the update that a form requests, only of the ticked containers.

    Raises
    ------
    pydantic.ValidationError
        When it is not a tag.
    """
    wait = {"": None, "wait": True, "at-once": False}.get(form.get("staging"))
    return UpdateDeploymentRequest(
        tag=form.get("tag"), staging=wait, instance_ids=form.chosen(INSTANCE)
    )


DEPLOYMENT_ROUTES = (
    Route("/o/{slug}/deployments", deployments),
    Route("/o/{slug}/deployments/{id}", showing(deployment_page)),
    Route("/o/{slug}/deployments/{id}", change_deployment, methods=["POST"]),
    Route("/o/{slug}/deployments/{id}/update", update_deployment, methods=["POST"]),
)
"""Routes of the module."""
