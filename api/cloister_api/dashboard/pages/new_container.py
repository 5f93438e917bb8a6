"""A new container: its release is checked, and then it is created, as by the REST API."""

import uuid
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloister_api.dashboard.forms import Form, read_form
from cloister_api.dashboard.pages.requests import (
    context_of,
    principal_of,
    render,
    require_admin,
    submit,
)
from cloister_api.dashboard.views import Tone
from cloister_api.errors import ApiError, bad_request, from_kube, from_model
from cloister_api.routes.audit import AuditedWrite
from cloister_api.schemas.container_responses import ReleaseVerdictResponse
from cloister_api.schemas.containers import CreateContainerRequest, ValidateReleaseRequest
from cloister_clients.kube import KubeError

__all__ = ["ROUTES", "body_of"]

SECRET = "secret:"  # noqa: S105 - the first part of a field's name
KEY = "key:"


def body_of(form: Form) -> dict[str, Any]:
    """Return a form as the body of `POST /api/containers`; empty fields are left out.

    Raises
    ------
    ApiError
        400 when a line of the variables has no equals sign, or names one twice.
    """
    body: dict[str, Any] = {name: form.get(name) for name in ("name", "repo", "tag")}
    body["variables"] = variables_of(form.get("variables"))
    body["secrets"] = form.chosen(SECRET)
    body["ssh_keys"] = form.chosen(KEY)
    body["debug"] = form.get("debug") == "on"
    if form.get("staging") == "on":
        body["staging"] = True
    if form.get("custom_domain"):
        body["custom_domain"] = form.get("custom_domain")
    return body


def variables_of(text: str) -> dict[str, str]:
    """Return the variables of a text with a ``NAME=value`` in each line.

    Raises
    ------
    ApiError
        400 when a line has no equals sign, or names one twice.
    """
    found: dict[str, str] = {}
    for line in filter(str.strip, text.splitlines()):
        name, equals, value = line.partition("=")
        if not equals:
            raise bad_request("variables", f"variables: {line} has no =; write NAME=value")
        if name.strip() in found:
            raise bad_request("variables", f"variables: {name.strip()} is there twice; keep one")
        found[name.strip()] = value
    return found


async def show(request: Request) -> Response:
    """Show the empty form."""
    return page(request, Form({"retry": str(uuid.uuid4())}))


def page(
    request: Request,
    form: Form,
    *,
    problem: ApiError | None = None,
    verdict: ReleaseVerdictResponse | None = None,
) -> Response:
    """Return the page with a form, and what was found about it.

    Parameters
    ----------
    request
        The request.
    form
        What was typed.
    problem
        Why nothing was created; None = nothing was to be.
    verdict
        What was found about the release; None = it was not checked.
    """
    context, principal = context_of(request), principal_of(request)
    return render(
        request,
        "new_container.html",
        typed=form,
        problem=problem,
        verdict=verdict,
        good=Tone.GOOD,
        bad=Tone.BAD,
        secrets=sorted(each.spec.name for each in context.cache.secrets_of(principal.namespace)),
        keys=sorted(each.metadata.name for each in context.cache.ssh_keys_of(principal.namespace)),
        domains=sorted(
            each.spec.domain
            for each in context.cache.domains_of(principal.namespace)
            if each.status.verified
        ),
    )


async def check(request: Request) -> Response:
    """Check the release of a form as a create would, and show all that is wrong with it."""
    require_admin(request)
    context, principal = context_of(request), principal_of(request)
    form = await read_form(request, seconds=context.settings.limits.body_seconds)
    try:
        body = body_of(form)
        named = ("repo", "tag", "variables", "secrets", "ssh_keys", "debug", "custom_domain")
        asked = {name: body[name] for name in named if name in body}
        if body["name"]:
            asked["instance_name"] = body["name"]
        verdict = await context.validation.release(
            principal, ValidateReleaseRequest.model_validate(asked)
        )
    except ValidationError as error:
        return page(request, form, problem=from_model(error))
    except KubeError as error:
        return page(request, form, problem=from_kube(error))
    except ApiError as error:
        return page(request, form, problem=error)
    return page(request, form, verdict=verdict)


async def create(request: Request) -> Response:
    """Create the container of a form, and show it."""

    async def write(form: Form, written: AuditedWrite) -> str:
        principal = principal_of(request)
        body = CreateContainerRequest.model_validate(body_of(form))
        made = await context_of(request).creator.create(principal, body, form.get("retry") or None)
        written.target = made.id
        return f"/o/{principal.slug}/containers/{made.id}?seen={made.version}"

    return await submit(request, "container.create", "", write, again, success=201)


async def again(request: Request, form: Form, problem: ApiError) -> Response:
    """Return the page with why nothing was created."""
    return page(request, form, problem=problem)


ROUTES = (
    Route("/o/{slug}/containers/new", show),
    Route("/o/{slug}/containers/new", create, methods=["POST"]),
    Route("/o/{slug}/containers/new/check", check, methods=["POST"]),
)
"""Routes of the module; they go before those of a container."""
