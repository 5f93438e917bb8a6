"""What can be done to a container: forms of its page, each a write as by the REST API."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloister_api.auth.authenticator import Principal
from cloister_api.cache import CachedContainer
from cloister_api.context import Context
from cloister_api.dashboard.forms import Form
from cloister_api.dashboard.pages.containers import container_page
from cloister_api.dashboard.pages.requests import context_of, principal_of, submit
from cloister_api.errors import ApiError, bad_request
from cloister_api.routes.audit import AuditedWrite
from cloister_api.schemas.containers import RelaunchRequest

__all__ = ["ROUTES"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A form that somebody has sent."""

    context: Context
    """What the facade has."""
    principal: Principal
    """Who."""
    held: CachedContainer
    """The container, in the version that the page showed."""
    form: Form
    """The form."""


Do = Callable[[Attempt], Awaitable[CachedContainer | None]]
"""Does something, and returns the container after it; None = it is gone."""


async def stop(attempt: Attempt) -> CachedContainer:
    """Stop what runs and keep the container."""
    return await attempt.context.updater.stop(attempt.held)


async def start(attempt: Attempt) -> CachedContainer:
    """Deploy a stopped container again."""
    body = requested(attempt.form)
    return await attempt.context.updater.start(attempt.principal, attempt.held, body)


async def relaunch(attempt: Attempt) -> CachedContainer:
    """Make a new attempt, perhaps of another release."""
    body = requested(attempt.form)
    return await attempt.context.updater.relaunch(attempt.principal, attempt.held, body)


async def accept(attempt: Attempt) -> CachedContainer:
    """Let the staged update take over."""
    return await attempt.context.updater.accept(attempt.held)


async def cancel(attempt: Attempt) -> CachedContainer:
    """Go back to what served before the update."""
    return await attempt.context.updater.cancel(attempt.held)


async def delete(attempt: Attempt) -> None:
    """Delete the container, whose name the form repeats.

    Raises
    ------
    ApiError
        400 when it names another one.
    """
    name = attempt.held.container.display_name
    if attempt.form.get("name") != name:
        raise bad_request("name", f"name: write {name} to delete this container for good")
    await attempt.context.updater.delete(attempt.principal, attempt.held)


async def follow(attempt: Attempt) -> CachedContainer:
    """Follow the newest release, or stay at this one."""
    wanted = attempt.form.get("wanted") == "on"
    return await attempt.context.updater.follow(attempt.held, wanted=wanted)


async def connect(attempt: Attempt) -> CachedContainer:
    """Listen to the repository's webhooks, or ignore them."""
    wanted = attempt.form.get("wanted") == "on"
    return await attempt.context.updater.connect(attempt.held, wanted=wanted)


def requested(form: Form) -> RelaunchRequest:
    """Return what a form changes: the release, where it names another one.

    Raises
    ------
    pydantic.ValidationError
        When it is no tag.
    """
    tag = form.get("tag")
    return RelaunchRequest(tag=tag) if tag else RelaunchRequest()


ACTIONS: dict[str, tuple[str, Do]] = {
    "stop": ("container.stop", stop),
    "start": ("container.start", start),
    "relaunch": ("container.relaunch", relaunch),
    "accept": ("container.update.accept", accept),
    "cancel": ("container.update.cancel", cancel),
    "delete": ("container.delete", delete),
    "auto-update": ("container.auto-update", follow),
    "github-connection": ("container.github-connection", connect),
}
"""What each form does, and what the audit trail calls it, by the last part of its address."""


async def act(request: Request) -> Response:
    """Do what a form asks for, and show the container; what is refused is said on its page."""
    name, identifier = request.path_params["action"], request.path_params["id"]
    if name not in ACTIONS:
        raise ApiError(404, "NOT_FOUND", "nothing of this name can be done to a container")
    action, do = ACTIONS[name]

    async def write(form: Form, _: AuditedWrite) -> str:
        context, principal = context_of(request), principal_of(request)
        held = await context.reader.get(principal, identifier, None, form.get("version") or None)
        changed = await do(Attempt(context, principal, held, form))
        where = f"/o/{principal.slug}/containers"
        return where if changed is None else f"{where}/{identifier}?seen={changed.version}"

    return await submit(request, action, identifier, write, again)


async def again(request: Request, form: Form, problem: ApiError) -> Response:
    """Return the page of the container with why something was not done."""
    return await container_page(request, problem=problem, form=form)


ROUTES = (Route("/o/{slug}/containers/{id}/{action}", act, methods=["POST"]),)
"""Routes of the module."""
