"""The members of an organization, for its administrators who are signed in.

An admin key cannot do any of this: a stolen one must not make administrators. A change is one
patch of the Organization in the version that it was decided on, so that it is done or not, and is
decided again where something else of the Organization was written meanwhile. Admin keys end with
the role of their creator: what is left undone of that by a facade that dies is done by the next
`cloister_api.auth.organizations.Organizations.sweep`.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from pydantic import ValidationError

from cloister_api.auth.authenticator import Principal
from cloister_api.auth.organizations import DEMOTED, administers
from cloister_api.cache import OwnedOrganization
from cloister_api.errors import ApiError, conflict, forbidden, from_model, not_found, unavailable
from cloister_api.ledger.keys.admin_keys import AdminKey
from cloister_api.services.infrastructure import Infrastructure
from cloister_api.services.resources.organization import AdminKeyDesk
from cloister_clients.kube import Conflict, Forbidden, Invalid, NotFound
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Organization
from cloister_crds.kinds.meta import GROUP, VERSION
from cloister_crds.kinds.organization import Member, Role

ATTEMPTS = 8
"""How often a change is decided again after a conflict with a concurrent write."""
SEEN_WAIT = 0.5
"""Seconds that a read waits for the version of a write at another replica."""
MAX_VERSION = 20
"""Most digits of a version."""
NOT_PERMITTED = (
    "the cluster does not let the API change the members of organizations; ask the administrator "
    "of the installation, to whom `cloister doctor` says what is missing"
)


class ManagedElsewhereError(ApiError):
    """409: a GitOps tool manages the members, and would revert a change."""

    def __init__(self, managers: Iterable[str], patch: str) -> None:
        super().__init__(
            409,
            "CONFLICT",
            f"the members of this organization are managed by {', '.join(managers)}; make the "
            "change in its repository",
        )
        self.patch = patch
        """What the repository should say, as a manifest."""


@dataclass(frozen=True, slots=True)
class Change:
    """What somebody wants of the members."""

    decide: Callable[[Organization], tuple[Member, ...]]
    """Returns the members after it. May raise ApiError."""
    shown: str = ""
    """Generation of the Organization on the page; empty means any."""
    entry: str | None = None
    """Member whose entry no GitOps tool may manage; None if it may manage none of them."""


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """A change that is done, or was before."""

    version: str
    """Version of the Organization, which other replicas wait for."""
    ended: tuple[AdminKey, ...]
    """Admin keys that ended with it."""


class MemberDesk:
    """Adds, promotes, demotes and removes members."""

    def __init__(self, base: Infrastructure, keys: AdminKeyDesk) -> None:
        self._client, self._cache = base.client, base.cache
        self._keys = keys
        self._gitops = frozenset(base.settings.gitops_managers)
        self._write_wait = base.settings.write_wait_seconds

    def managers(self, organization: Organization, user: str | None = None) -> list[str]:
        """Return the GitOps tools that manage the members, by name.

        Parameters
        ----------
        organization
            The Organization, as the cache or the server has it.
        user
            The member whose entry is meant; None means any entry.
        """
        if not isinstance(organization, OwnedOrganization):
            return []
        owners = organization.owners.get("members", frozenset())
        if user is not None:
            owners = organization.member_owners.get(user, frozenset())
        return sorted(self._gitops & owners)

    async def reached(self, seen: str) -> None:
        """Wait a moment until the copy in memory shows a version, of which a page was told."""
        if seen.isascii() and seen.isdecimal() and len(seen) <= MAX_VERSION:
            await self._cache.organizations.reached(seen, within=SEEN_WAIT)

    async def add(self, principal: Principal, user: str, role: str) -> MembersChanged:
        """Add a member; to add one who is there with this role changes nothing.

        Raises
        ------
        ApiError
            As `added`, and as every change (`_write`).
        """
        return await self._write(principal, Change(lambda present: added(present, user, role)))

    async def put(self, principal: Principal, user: str, role: str) -> MembersChanged:
        """Make somebody a member with a role, whatever they were before.

        Raises
        ------
        ApiError
            As `put_into`, and as every change (`_write`).
        """
        change = Change(lambda present: put_into(present, user, role))
        if role == Role.ADMIN:
            return await self._write(principal, change)
        return await self._demote(principal, user, change)

    async def change_role(
        self, principal: Principal, user: str, role: str, shown: str
    ) -> MembersChanged:
        """Promote or demote a member, whose admin keys end where the role of Admin does.

        Parameters
        ----------
        shown
            Generation of the Organization on the page; empty means any.

        Raises
        ------
        ApiError
            As `with_role`, and as every change (`_write`).
        """
        change = Change(lambda present: with_role(present, user, role), shown)
        if role == Role.ADMIN:
            return await self._write(principal, change)
        return await self._demote(principal, user, change)

    async def remove(self, principal: Principal, user: str, shown: str) -> MembersChanged:
        """Remove a member, whose admin keys end; to remove who is not there changes nothing.

        A member added by hand, in addition to those of a repository, can only be removed this way.
        Takes what `change_role` takes.

        Raises
        ------
        ApiError
            As `without`, and as every change (`_write`).
        """
        change = Change(lambda present: without(present, user), shown, entry=user)
        return await self._demote(principal, user, change)

    async def expel(self, principal: Principal, user: str) -> MembersChanged:
        """Remove a member as `remove` does, whatever a page showed; who is not there is unknown.

        Raises
        ------
        ApiError
            404 when the user is not a member; as `remove`.
        """
        change = Change(lambda present: without_one(present, user), entry=user)
        return await self._demote(principal, user, change)

    async def _demote(self, principal: Principal, user: str, change: Change) -> MembersChanged:
        """Write what takes the role of Admin from a user, and revoke their admin keys.

        Raises
        ------
        ApiError
            As every change (`_write`).
        """
        before = await self._keys.valid_of(principal, user)
        done = await self._write(principal, change)
        # The guard of the Organizations may have revoked some by now; others are newer.
        after = await self._keys.valid_of(principal, user)
        ended = tuple({key.id: key for key in (*after, *before)}.values())
        await self._keys.end(ended, because=DEMOTED)
        return replace(done, ended=ended)

    async def _write(self, principal: Principal, change: Change) -> MembersChanged:
        """Write what is decided, and wait until the copy in memory shows it.

        Raises
        ------
        ApiError
            As what decides; 403 when the principal is not Admin any more, 404 when the
            Organization is gone, 409 when a GitOps tool manages the members or others keep
            writing, 412 when spec has another generation than was shown, 503 where the API lacks
            the right.
        KubeError
            When the cluster does not respond; it may be done then.
        """
        for _ in range(ATTEMPTS):
            present = await self._live(principal)
            meta = present.metadata
            members = change.decide(present)
            if members == present.spec.members:
                return MembersChanged(meta.resource_version, ())
            managers = self.managers(present, change.entry)
            if managers:
                raise ManagedElsewhereError(managers, manifest_of(principal.slug, members))
            require_unchanged(change.shown, meta.generation)
            patch = {
                "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
                "spec": {"members": [member.wire() for member in members]},
            }
            try:
                item = await self._client.merge_patch(of(Organization), meta.name, patch)
            except Conflict:
                continue
            except NotFound as error:
                raise not_found("organization") from error
            except Forbidden as error:
                raise unavailable(NOT_PERMITTED) from error
            except Invalid as error:
                raise ApiError(400, "BAD_REQUEST", error.message) from error
            version = str(item["metadata"]["resourceVersion"])
            await self._cache.organizations.reached(version, within=self._write_wait)
            return MembersChanged(version, ())
        raise conflict("the organization is being changed by others; try again")

    async def _live(self, principal: Principal) -> OwnedOrganization:
        """Return the principal's Organization as the server has it, of which they are Admin.

        Raises
        ------
        ApiError
            403 when they are not, 404 when it is gone.
        """
        try:
            found = await self._client.get(of(Organization), principal.slug)
        except NotFound as error:
            raise not_found("organization") from error
        present = OwnedOrganization.read(found)
        if (
            present.identifier != principal.organization_id
            or present.metadata.deletion_timestamp is not None
        ):
            raise not_found("organization")
        if not administers(present, principal.user):
            raise forbidden(
                "you are not an administrator of this organization any more; one who is can do this"
            )
        return present


def added(organization: Organization, user: str, role: str) -> tuple[Member, ...]:
    """Return the members with another one.

    Raises
    ------
    ApiError
        400 when the kind refuses the name or the role, 409 when the user has another role.
    """
    member, present = member_of(user, role), named(organization, user)
    if present is None:
        return (*organization.spec.members, member)
    if present.role is not member.role:
        raise conflict(
            f"{user} is in this organization already, as {present.role}; change the role there"
        )
    return organization.spec.members


def with_role(organization: Organization, user: str, role: str) -> tuple[Member, ...]:
    """Return the members with another role of one.

    Raises
    ------
    ApiError
        400 when there is no such role, 404 when the user is not a member, 409 when no
        administrator would be left.
    """
    wanted = member_of(user, role)
    if named(organization, user) is None:
        raise not_found("member")
    members = organization.spec.members
    return administered(user, tuple(wanted if one.user == user else one for one in members))


def put_into(organization: Organization, user: str, role: str) -> tuple[Member, ...]:
    """Return the members with one who has a role, added where they were not there.

    Raises
    ------
    ApiError
        As `added` and `with_role`.
    """
    if named(organization, user) is None:
        return added(organization, user, role)
    return with_role(organization, user, role)


def without(organization: Organization, user: str) -> tuple[Member, ...]:
    """Return the members without one.

    Raises
    ------
    ApiError
        409 when no administrator would be left.
    """
    return administered(user, tuple(one for one in organization.spec.members if one.user != user))


def without_one(organization: Organization, user: str) -> tuple[Member, ...]:
    """Return the members without one who is there.

    Raises
    ------
    ApiError
        404 when the user is not a member; as `without`.
    """
    if named(organization, user) is None:
        raise not_found("member")
    return without(organization, user)


def administered(user: str, members: tuple[Member, ...]) -> tuple[Member, ...]:
    """Return members of whom one at least is Admin.

    Raises
    ------
    ApiError
        409 when none is.
    """
    if not any(member.role is Role.ADMIN for member in members):
        raise conflict(
            f"{user} is the only administrator of this organization; make somebody else an "
            "administrator first"
        )
    return members


def member_of(user: str, role: str) -> Member:
    """Return a member by the rules of the kind.

    Raises
    ------
    ApiError
        400 with every field that is wrong.
    """
    try:
        return Member.model_validate({"user": user, "role": role})
    except ValidationError as error:
        raise from_model(error) from error


def named(organization: Organization, user: str) -> Member | None:
    """Return the member with a name; None if there is none."""
    return next((each for each in organization.spec.members if each.user == user), None)


def require_unchanged(shown: str, generation: int) -> None:
    """Let a change go on that was requested for the spec as it is.

    Parameters
    ----------
    shown
        Generation on the page; empty means any.

    Raises
    ------
    ApiError
        412 when it was another one.
    """
    if shown and shown != str(generation):
        raise ApiError(
            412,
            "PRECONDITION_FAILED",
            "the organization was changed since this page was made; look at how it is now, and "
            "send it again if you still want it",
        )


def manifest_of(slug: str, members: Iterable[Member]) -> str:
    """Return the members of an Organization as the manifest that a repository should have.

    Texts are quoted as in JSON, which YAML reads alike: a dumper takes 0.2 s for 1,000 members.
    """
    entries = (
        f"  - user: {json.dumps(member.user)}\n    role: {member.role.value}\n"
        for member in members
    )
    return (
        f"apiVersion: {GROUP}/{VERSION}\nkind: {Organization.INFO.kind}\n"
        f"metadata:\n  name: {json.dumps(slug)}\nspec:\n  members:\n{''.join(entries)}"
    )
