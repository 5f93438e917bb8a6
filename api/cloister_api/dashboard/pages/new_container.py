"""A new container: its release is checked, and then it is created, as by the REST API."""

from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloister_api.dashboard.forms import Form, read_form
from cloister_api.dashboard.pages.container_forms import choices_of, requested_of
from cloister_api.dashboard.pages.requests import (
    context_of,
    principal_of,
    render,
    require_admin,
    submit,
)
from cloister_api.dashboard.views.rows import Tone
from cloister_api.errors import ApiError, from_kube, from_model
from cloister_api.routes.audit import AuditedWrite
from cloister_api.schemas.container_responses import ReleaseVerdictResponse
from cloister_api.schemas.containers import CreateContainerRequest, ValidateReleaseRequest
from cloister_clients.kube import KubeError

__all__ = ["ROUTES", "body_of"]

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


async def show(request: Request) -> Response:
    """Show the empty form."""
    return await page(request, Form.fresh())


async def page(
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
        releases=await releases_of(request, form) if problem or verdict else [],
        good=Tone.GOOD,
        bad=Tone.BAD,
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
    require_admin(request)
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
        return await page(request, form, problem=from_model(error))
    except KubeError as error:
        return await page(request, form, problem=from_kube(error))
    except ApiError as error:
        return await page(request, form, problem=error)
    return await page(request, form, verdict=verdict)


async def create(request: Request) -> Response:
    """Create the container of a form, and show it."""

    async def write(form: Form, written: AuditedWrite) -> str:
        principal = principal_of(request)
        body = CreateContainerRequest.model_validate(body_of(form))
        made = await context_of(request).creator.create(principal, body, form.retry)
        written.target = made.id
        return f"/o/{principal.slug}/containers/{made.id}?seen={made.version}"

    return await submit(request, "container.create", "", write, again, success=201)


async def again(request: Request, form: Form, problem: ApiError) -> Response:
    """Return the page with why nothing was created."""
    return await page(request, form, problem=problem)


ROUTES = (
    Route("/o/{slug}/containers/new", show),
    Route("/o/{slug}/containers/new", create, methods=["POST"]),
    Route("/o/{slug}/containers/new/check", check, methods=["POST"]),
)
"""Routes of the module; they go before those of a container."""
