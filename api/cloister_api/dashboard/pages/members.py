"""The people of an organization: all of them read, administrators add, promote, demote, remove.

Each person has a page of their own, which names the admin keys that end with a demotion or a
removal before it is done, and afterwards shows that they did. It lasts beyond a removal.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloister_api.dashboard.pages.requests import (
    Write,
    context_of,
    principal_of,
    render,
    require_recent,
    require_right,
    sign_in_again,
    submit,
)
from cloister_api.dashboard.rendering import Form
from cloister_api.errors import ApiError, not_found
from cloister_api.ledger.keys.admin_keys import AdminKey
from cloister_api.routes.audit import AuditedWrite
from cloister_api.services.resources.members import (
    ManagedElsewhereError,
    MembersChanged,
    manifest_of,
    named,
    with_role,
    without,
)
from cloister_api.services.resources.organization import is_valid
from cloister_crds.kinds import Organization
from cloister_crds.kinds.organization import Member, Role

MOST_ENDED = 20
"""Most admin keys that are not valid any more which a page shows."""
EVERY = 30
"""Seconds after which the page of a person fetches itself: nothing tells of their admin keys."""
ANYBODY = Member(user="NAME", role=Role.MEMBER)
"""Stands for a new member in an example."""

Change = Callable[[Form], Awaitable[MembersChanged]]
"""Does what a form requests."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who is, or was, a member."""

    user: str
    """Name."""
    role: Role | None
    """Role; None if not a member any more."""
    other_roles: tuple[Role, ...]
    """The roles that the person can get."""
    irreplaceable: bool
    """Whether nobody else is Admin."""
    changeable: bool
    """Whether the role can be changed here."""
    removable: bool
    """Whether the person can be removed here."""
    valid: tuple[AdminKey, ...]
    """Admin keys that would end, newest first."""
    ended: tuple[AdminKey, ...]
    """Admin keys that are not valid any more, newest first."""
    manifests: tuple[tuple[str, str], ...]
    """What a repository should have for each change, where one manages the members."""


def person_of(
    organization: Organization,
    user: str,
    valid: tuple[AdminKey, ...],
    ended: tuple[AdminKey, ...],
    *,
    managed: bool,
    entry_managed: bool,
) -> Person:
    """Return what is shown of a person.

    Parameters
    ----------
    valid
        Valid admin keys that they created.
    managed
        Whether a GitOps tool manages some of the members.

    Raises
    ------
    ApiError
        404 when they are not a member and no admin key tells that they were.
    """
    member, slug = named(organization, user), organization.metadata.name
    if member is None and not valid and not ended:
        raise not_found("member")
    role = member.role if member is not None else None
    others = tuple(each for each in Role if each is not role)
    admins = [each.user for each in organization.spec.members if each.role is Role.ADMIN]
    # Without an administrator nobody could change the organization any more.
    irreplaceable = admins == [user]
    possible = member is not None and not irreplaceable
    manifests = []
    if possible and managed:
        for other in others:
            text = manifest_of(slug, with_role(organization, user, other))
            manifests.append((f"In the repository, as {other.value}", text))
    if possible and entry_managed:
        text = manifest_of(slug, without(organization, user))
        manifests.append(("In the repository, removed", text))
    return Person(
        user=user,
        role=role,
        other_roles=others,
        irreplaceable=irreplaceable,
        changeable=possible and not managed,
        removable=possible and not entry_managed,
        valid=valid,
        ended=ended[:MOST_ENDED],
        manifests=tuple(manifests),
    )


def page_after(slug: str, actor: str, user: str, done: MembersChanged, *, removed: bool) -> str:
    """Return the address of the page that shows what a change has done.

    Parameters
    ----------
    actor
        Who did it; after a demotion or removal of their own they see less.
    removed
        Whether the person is not a member after it.
    """
    if removed and actor == user:
        return "/organizations?all"
    if done.ended and actor != user:
        return f"{person_address(slug, user)}&{urlencode({'seen': done.version})}"
    return f"/o/{slug}/members?{urlencode({'seen': done.version})}"


def person_address(slug: str, user: str) -> str:
    """Return the address of the page of a person."""
    return f"/o/{slug}/members/person?{urlencode({'user': user})}"


async def show(request: Request) -> Response:
    """Show all of them."""
    await context_of(request).members.reached(request.query_params.get("seen", ""))
    return page(request, Form({}))


def page(request: Request, form: Form, problem: ApiError | None = None) -> Response:
    """Return the page of all with what was typed, and why that was not done."""
    context, principal = context_of(request), principal_of(request)
    organization, desk = principal.organization, context.members
    managers = desk.managers(organization)
    members = organization.spec.members
    return render(
        request,
        "members.html",
        problem=problem,
        parts=("organization",),
        typed=form,
        patch=problem.patch if isinstance(problem, ManagedElsewhereError) else "",
        rows=[
            (each, ", ".join(desk.managers(organization, each.user)))
            for each in context.organization.members(principal)
        ],
        managers=managers,
        manifest=manifest_of(principal.slug, (*members, ANYBODY)) if managers else "",
        again=sign_in_again(request, f"/o/{principal.slug}/members"),
    )


async def show_person(request: Request) -> Response:
    """Show one, with what would end with their role."""
    await context_of(request).members.reached(request.query_params.get("seen", ""))
    require_right(request)
    return person_page(request, request.query_params.get("user", ""))


def person_page(request: Request, user: str, problem: ApiError | None = None) -> Response:
    """Return the page of one person, and why something was not done.

    Raises
    ------
    ApiError
        404 when the organization does not know the person.
    """
    context, principal = context_of(request), principal_of(request)
    managers = context.members.managers(principal.organization)
    now = context.clock()
    own = [key for key in context.admin_key_desk.of(principal) if key.created_by == user]
    return render(
        request,
        "member.html",
        problem=problem,
        parts=("organization",),
        every=EVERY,
        managers=managers,
        generation=principal.organization.metadata.generation,
        again=sign_in_again(request, person_address(principal.slug, user)),
        person=person_of(
            principal.organization,
            user,
            tuple(key for key in own if is_valid(key, now)),
            tuple(key for key in own if not is_valid(key, now)),
            managed=bool(managers),
            entry_managed=bool(context.members.managers(principal.organization, user)),
        ),
    )


async def add(request: Request) -> Response:
    """Add a member."""

    async def change(form: Form) -> MembersChanged:
        desk, principal = context_of(request).members, principal_of(request)
        return await desk.add(principal, form.get("name"), form.get("role"))

    return await submit(request, "member.add", "", written_by(request, change), again_all)


async def change_role(request: Request) -> Response:
    """Change the role of a member."""

    async def change(form: Form) -> MembersChanged:
        desk, principal = context_of(request).members, principal_of(request)
        return await desk.change_role(
            principal, form.get("name"), form.get("role"), form.get("version")
        )

    return await submit(request, "member.role", "", written_by(request, change), again_one)


async def remove(request: Request) -> Response:
    """Remove a member."""

    async def change(form: Form) -> MembersChanged:
        desk, principal = context_of(request).members, principal_of(request)
        return await desk.remove(principal, form.get("name"), form.get("version"))

    write = written_by(request, change, removes=True)
    return await submit(request, "member.remove", "", write, again_one)


def written_by(request: Request, change: Change, *, removes: bool = False) -> Write:
    """Return what does a change for who signed in a short while ago, and says where it is shown.

    Parameters
    ----------
    removes
        Whether the person is not a member after it.
    """

    async def write(form: Form, _: AuditedWrite) -> str:
        require_recent(request)
        principal = principal_of(request)
        done = await change(form)
        user = form.get("name")
        return page_after(principal.slug, principal.user, user, done, removed=removes)

    return write


async def again_all(request: Request, form: Form, problem: ApiError) -> Response:
    """Return the page of all with why somebody was not added.

    Raises
    ------
    ApiError
        That, for who may add nobody.
    """
    try:
        require_right(request)
    except ApiError:
        raise problem from None
    return page(request, form, problem)


async def again_one(request: Request, form: Form, problem: ApiError) -> Response:
    """Return the page of a person with why they were not changed.

    Raises
    ------
    ApiError
        That, for who may not see the page, or where there is no such person.
    """
    try:
        require_right(request)
        return person_page(request, form.get("name"), problem)
    except ApiError:
        raise problem from None


ROUTES = (
    Route("/o/{slug}/members", show),
    Route("/o/{slug}/members", add, methods=["POST"]),
    Route("/o/{slug}/members/person", show_person),
    Route("/o/{slug}/members/role", change_role, methods=["POST"]),
    Route("/o/{slug}/members/remove", remove, methods=["POST"]),
)
"""Routes of the module."""
