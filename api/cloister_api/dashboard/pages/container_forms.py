"""The forms of containers: a new one, and changes of the settings of one."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic.alias_generators import to_camel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloister_api.auth.roles import RoleRight
from cloister_api.cache import CachedContainer
from cloister_api.dashboard.pages.containers import about_container
from cloister_api.dashboard.pages.requests import (
    context_of,
    principal_of,
    render,
    require_right,
    submit,
)
from cloister_api.dashboard.rendering import Form, read_form
from cloister_api.errors import ApiError, bad_request, from_kube, from_model
from cloister_api.routes.audit import AuditedWrite
from cloister_api.schemas.container_responses import ReleaseVerdictResponse
from cloister_api.schemas.containers import (
    CreateContainerRequest,
    RelaunchRequest,
    ValidateReleaseRequest,
)
from cloister_clients.kube import KubeError
from cloister_crds.kinds.container import Container, ContainerSpec, DesiredState

SECRET = "secret:"  # noqa: S105 - the first part of a field's name
KEY = "key:"
ON = "on"
MOST_DIGITS = 18
"""Digits of numbers that are worth to be compared with their bounds."""


def choices_of(request: Request) -> dict[str, Any]:
    """Return what the fields offer: of the organization, and only what it may use."""
    context, principal = context_of(request), principal_of(request)
    cache, namespace = context.cache, principal.namespace
    spec = principal.organization.spec
    return {
        "secrets": sorted({each.spec.name for each in cache.secrets_of(namespace)}),
        "keys": sorted(each.metadata.name for each in cache.ssh_keys_of(namespace)),
        "domains": sorted(
            each.spec.domain for each in cache.domains_of(namespace) if each.status.verified
        ),
        "hosts": [each.name for each in context.validation.hosts()]
        if spec.entitlements.host_selection
        else [],
        "gpus": sorted({0, *spec.limits.gpus}) if spec.entitlements.gpu else [],
    }


def requested_of(form: Form) -> dict[str, Any]:
    """Return what a form requests, by the fields of the REST API.

    Raises
    ------
    ApiError
        400 when a line of the variables has no equals sign, or names one twice.
    """
    return {
        "variables": variables_of(form.whole("variables")),
        "secrets": form.chosen(SECRET),
        "ssh_keys": form.chosen(KEY),
        "debug": form.get("debug") == ON,
        "staging": form.get("staging") == ON,
        "disable_confidential": form.get("disable_confidential") == ON,
        "custom_domain": form.get("custom_domain"),
        "host": form.get("host"),
        "gpus": number_or_text(form.get("gpus")),
    }


def number_or_text(text: str) -> int | str | None:
    """Return a number, the text that is not one, which is refused, or None for an empty one."""
    if not text:
        return None
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else text


def variables_of(text: str) -> dict[str, str]:
    """Return the variables of a text with a ``NAME=value`` in each line.

    Raises
    ------
    ApiError
        400 when a line has no equals sign, or names one twice.
    """
    found: dict[str, str] = {}
    for line in filter(str.strip, text.split("\n")):
        name, equals, value = line.partition("=")
        if not equals:
            raise bad_request("variables", f"variables: {line} has no =; write NAME=value")
        if name.strip() in found:
            raise bad_request("variables", f"variables: {name.strip()} is there twice; keep one")
        found[name.strip()] = value
    return found


def present(spec: ContainerSpec) -> dict[str, Any]:
    """Return what a container requests, by the fields of the REST API."""
    return {
        "variables": {each.name: each.value for each in spec.variables},
        "secrets": list(spec.secrets),
        "ssh_keys": list(spec.ssh_keys),
        "debug": spec.debug,
        "staging": bool(spec.staging),
        "disable_confidential": spec.disable_confidential,
        "custom_domain": spec.custom_domain or "",
        "host": spec.host or "",
        "gpus": spec.gpus,
    }


def filled(spec: ContainerSpec) -> Form:
    """Return the form of a container as it is."""
    now = present(spec)
    boxes = {
        **{f"{SECRET}{name}": ON for name in now["secrets"]},
        **{f"{KEY}{name}": ON for name in now["ssh_keys"]},
        **{name: ON for name in ("debug", "staging", "disable_confidential") if now[name]},
    }
    lines = [f"{name}={value}" for name, value in now["variables"].items()]
    return Form(
        {
            **boxes,
            "tag": spec.tag,
            "variables": "\n".join(lines),
            "custom_domain": now["custom_domain"],
            "host": now["host"],
            "gpus": "" if now["gpus"] is None else str(now["gpus"]),
        }
    )


def changes_of(form: Form, spec: ContainerSpec) -> dict[str, Any]:
    """Return what a form changes of a container; what is as it was is left out.

    Raises
    ------
    ApiError
        400 as `requested_of`.
    """
    wanted, now = requested_of(form), present(spec)
    changed = {name: value for name, value in wanted.items() if differs(name, value, now)}
    # An empty choice leaves them as they are.
    for name in ("host", "gpus"):
        if not wanted[name] and wanted[name] != 0:
            changed.pop(name, None)
    tag = form.get("tag")
    return {**changed, **({"tag": tag} if tag and tag != spec.tag else {})}


def container_manifest_of(name: str, namespace: str, changes: Mapping[str, Any]) -> str:
    """Return changes as the part of a manifest that the Container's manager writes.

    Parameters
    ----------
    changes
        What changes, by the fields of the REST API.
    """
    spec = {to_camel(field): value for field, value in changes.items()}
    if "variables" in spec:
        spec["variables"] = [
            {"name": variable, "value": value} for variable, value in spec["variables"].items()
        ]
    if spec.get("customDomain") == "":
        spec["customDomain"] = None
    item = {
        "apiVersion": Container.INFO.api_version,
        "kind": Container.INFO.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    return yaml.safe_dump(item, sort_keys=False, allow_unicode=True)


def differs(name: str, value: Any, now: Mapping[str, Any]) -> bool:
    """Return whether a field requests something else; the order of lists does not count."""
    if isinstance(value, list):
        return set(value) != set(now[name])
    return bool(value != now[name])


async def show_settings(request: Request) -> Response:
    """Show what the container requests."""
    return await settings_page(request, None)


async def settings_page(
    request: Request, form: Form | None, problem: ApiError | None = None
) -> Response:
    """Return the page with what was typed, and why that was not done.

    Parameters
    ----------
    form
        What was typed; None means the container as it is.
    problem
        Why it was not done.
    """
    context, principal = context_of(request), principal_of(request)
    held = await context.reader.get(
        principal, request.path_params["id"], request.query_params.get("seen")
    )
    spec = held.container.spec
    return render(
        request,
        "container_settings.html",
        problem=problem,
        typed=form or filled(spec),
        stopped=spec.state is DesiredState.STOPPED,
        manifest=manifest_if_managed(held, form, problem),
        object_name=held.container.metadata.name,
        **about_container(request, held),
        **choices_of(request),
    )


def manifest_if_managed(held: CachedContainer, form: Form | None, problem: ApiError | None) -> str:
    """Return what a form requests as a manifest, where somebody else manages it; else empty."""
    meta = held.container.metadata
    if form is None or problem is None or problem.status != HTTPStatus.CONFLICT:
        return ""
    try:
        changes = changes_of(form, held.container.spec)
    except ApiError:
        return ""
    return container_manifest_of(meta.name, meta.namespace or "", changes) if changes else ""


async def change(request: Request) -> Response:
    """Run the container with what the form changes."""
    context, identifier = context_of(request), request.path_params["id"]
    shown = await context.reader.get(principal_of(request), identifier, None)
    stopped = shown.container.spec.state is DesiredState.STOPPED
    action = "container.start" if stopped else "container.relaunch"

    async def write(form: Form, _: AuditedWrite) -> str:
        principal = principal_of(request)
        held = await context.reader.get(principal, identifier, None, form.get("version") or None)
        body = RelaunchRequest.model_validate(changes_of(form, held.container.spec))
        deploy = context.updater.start if stopped else context.updater.relaunch
        changed = await deploy(principal, held, body)
        return f"/o/{principal.slug}/containers/{identifier}?seen={changed.version}"

    return await submit(request, action, identifier, write, settings_page, right=RoleRight.DEPLOY)


SETTINGS_ROUTES = (
    Route("/o/{slug}/containers/{id}/settings", show_settings),
    Route("/o/{slug}/containers/{id}/settings", change, methods=["POST"]),
)
"""Routes of the module; they go before those of the other forms of a container."""


MOST_RELEASES = 20
"""Releases that are offered."""


def body_of(form: Form) -> dict[str, Any]:
    """Return a form as the body of `POST /api/containers`; empty fields are left out.

    Raises
    ------
    ApiError
        400 when a line of the variables has no equals sign, or names one twice.
    """
    asked = requested_of(form)
    optional = ("custom_domain", "host", "gpus", "staging", "disable_confidential")
    left_out = {name for name in optional if asked[name] in {"", None, False}}
    # Zero GPUs are fewer than the file may ask for.
    if asked["gpus"] == 0:
        left_out.discard("gpus")
    body = {name: value for name, value in asked.items() if name not in left_out}
    body |= {name: form.get(name) for name in ("name", "repo", "tag")}
    if form.get("replaces"):
        body["replaces"] = form.get("replaces")
    return body


async def show_new(request: Request) -> Response:
    """Show the empty form."""
    return await new_page(request, Form.fresh())


async def new_page(
    request: Request,
    form: Form,
    *,
    problem: ApiError | None = None,
    verdict: ReleaseVerdictResponse | None = None,
) -> Response:
    """Return the page with a form, and what was found about it.

    Parameters
    ----------
    problem
        Why nothing was created; None if nothing was requested.
    verdict
        What was found about the release; None if it was not checked.
    """
    context, principal = context_of(request), principal_of(request)
    return render(
        request,
        "new_container.html",
        typed=form,
        problem=problem,
        verdict=verdict,
        releases=await releases_of(request, form) if problem or verdict else [],
        marked={each.line for each in verdict.errors} if verdict is not None else set(),
        containers=[
            (each.id, each.container.display_name, each.container.spec.debug)
            for each in context.cache.containers_of(principal.namespace)
            if not each.going
        ],
        **choices_of(request),
    )


async def releases_of(request: Request, form: Form) -> list[str]:
    """Return the newest tags of a form's repository; none where they cannot be had."""
    context, principal = context_of(request), principal_of(request)
    try:
        found = await context.validation.releases(principal, form.get("repo"), MOST_RELEASES)
    except ApiError:
        return []
    return [each.tag for each in found]


async def check(request: Request) -> Response:
    """Check the release of a form as a create would, and show all that is wrong with it."""
    require_right(request, RoleRight.DEPLOY)
    context, principal = context_of(request), principal_of(request)
    form = await read_form(request, seconds=context.settings.limits.body_seconds)
    try:
        body = body_of(form)
        asked = {name: value for name, value in body.items() if name not in {"name", "replaces"}}
        if body["name"]:
            asked["instance_name"] = body["name"]
        verdict = await context.validation.release(
            principal, ValidateReleaseRequest.model_validate(asked)
        )
    except ValidationError as error:
        return await again(request, form, from_model(error))
    except KubeError as error:
        return await again(request, form, from_kube(error))
    except ApiError as error:
        return await again(request, form, error)
    return await new_page(request, form, verdict=verdict)


async def create(request: Request) -> Response:
    """Create the container of a form, and show it."""

    async def write(form: Form, written: AuditedWrite) -> str:
        principal = principal_of(request)
        body = CreateContainerRequest.model_validate(body_of(form))
        made = await context_of(request).creator.create(principal, body, form.retry)
        written.target = made.id
        return f"/o/{principal.slug}/containers/{made.id}?seen={made.version}"

    return await submit(
        request, "container.create", "", write, again, success=201, right=RoleRight.DEPLOY
    )


async def again(request: Request, form: Form, problem: ApiError) -> Response:
    """Return the page with why nothing was created."""
    return await new_page(request, form.refused(problem), problem=problem)


NEW_ROUTES = (
    Route("/o/{slug}/containers/new", show_new),
    Route("/o/{slug}/containers/new", create, methods=["POST"]),
    Route("/o/{slug}/containers/new/check", check, methods=["POST"]),
)
"""Routes of the module; they go before those of a container."""
