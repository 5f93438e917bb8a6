"""Browser sessions: who is signed in, and of which organizations they are a member.

A session says who somebody is, never what they may: that stands in the Organizations, which are
read at every request. The facade's copy follows them within a moment.
"""

import uuid
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cloister_api.cache import BY_MEMBER, ClusterCache
from cloister_api.errors import ApiError, forbidden, not_found
from cloister_api.ledger.audit import AuditRow, AuditTrail
from cloister_api.ledger.keys.sessions import SessionLinks, SessionMethod, SessionRow, SessionTable
from cloister_api.sessions.settings import SessionSettings
from cloister_clients.clock import Clock
from cloister_crds.kinds import Organization
from cloister_crds.kinds.organization import Role

SEEN_EVERY = timedelta(minutes=1)
"""How often the use of a session is written at most."""
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""When somebody last proved who they are, of whom that is not known."""
REFUSED = 60
"""Failed sign-ins that are recorded in a minute."""
SPENT = ApiError(
    403,
    "FORBIDDEN",
    "this link was used, has expired, or never existed; ask for another one: "
    "`cloister session link --user NAME` makes it",
)


@dataclass(frozen=True, slots=True)
class Membership:
    """What a user is in an organization."""

    organization: Organization
    """The organization."""
    role: Role
    """What the user may do there."""


class Sessions:
    """Begins, finds and ends sessions."""

    def __init__(
        self,
        table: SessionTable,
        links: SessionLinks,
        cache: ClusterCache,
        audit: AuditTrail,
        clock: Clock,
        settings: SessionSettings,
    ) -> None:
        self._table = table
        self._links = links
        self._cache = cache
        self._audit = audit
        self._clock = clock
        self._settings = settings
        self._refused: deque[datetime] = deque(maxlen=REFUSED)

    async def find(self, value: str, *, used: bool = True) -> SessionRow | None:
        """Return the session of a cookie's value while it lasts.

        Parameters
        ----------
        used
            Whether somebody uses it now: a page that keeps itself current does not.
        """
        session, now = await self._table.find(value), self._clock()
        if session is None or is_over(session, now, self._settings):
            return None
        if used and now - session.seen_at >= SEEN_EVERY:
            await self._table.seen(session.id, now)
        return session

    async def over(self, identifiers: Collection[str]) -> set[str]:
        """Return which sessions, by identifier, do not last any more."""
        now = self._clock()
        found = await self._table.some(identifiers)
        lasting = {each.id for each in found if not is_over(each, now, self._settings)}
        return set(identifiers) - lasting

    async def of(self, user: str) -> list[SessionRow]:
        """Return the sessions of a user that last, oldest first."""
        now = self._clock()
        found = await self._table.of(user)
        return [each for each in found if not is_over(each, now, self._settings)]

    async def user_of_link(self, token: str) -> str:
        """Return whom a one-time link signs in; it stays unused.

        Raises
        ------
        ApiError
            403 when it was used, is too old or unknown.
        """
        user = await self._links.user(token, self._clock())
        if user is None:
            raise SPENT
        return user

    async def begin_by_link(
        self, token: str, *, agent: str, request_id: str
    ) -> tuple[SessionRow, str]:
        """Use a one-time link up, and begin a session.

        Raises
        ------
        ApiError
            403 when the link was used, is too old or unknown.
        """
        now = self._clock()
        user = await self._links.use(token, now)
        if user is None:
            raise SPENT
        return await self._begin(user, SessionMethod.ONCE, now, agent, request_id)

    async def begin_by_provider(
        self, user: str, *, authenticated_at: datetime | None, agent: str, request_id: str
    ) -> tuple[SessionRow, str]:
        """Begin a session of somebody for whom the OpenID provider vouches.

        Parameters
        ----------
        authenticated_at
            When they last proved at the provider who they are, in UTC; None if it does not say, so
            that nothing counts as recent.
        """
        proven = authenticated_at or NEVER
        return await self._begin(user, SessionMethod.OIDC, proven, agent, request_id)

    async def refuse(self, reason: str, subject: str, *, request_id: str) -> None:
        """Record that a sign-in by the provider failed.

        Nobody is signed in who could be held to it, so that the row is of no organization, and
        there are at most sixty a minute of each replica.

        Parameters
        ----------
        subject
            Subject at the provider; empty means nobody, as far as was seen.
        """
        now = self._clock()
        if len(self._refused) == REFUSED and now - self._refused[0] < timedelta(minutes=1):
            return
        self._refused.append(now)
        await self._audit.add(
            AuditRow(
                at=now,
                request_id=request_id,
                organization="",
                actor="sign-in",
                key_id=None,
                action="session.refused",
                target=f"{reason} {ascii(subject)[1:-1]}".strip()[:253],
                result="403 FORBIDDEN",
            )
        )

    async def end(self, session: SessionRow, *, because: str, request_id: str) -> None:
        """End a session, immediately in all replicas."""
        if await self._table.end(session.id, because=because, now=self._clock()):
            await self._record("session.end", session, request_id)

    def memberships(self, user: str) -> list[Membership]:
        """Return the organizations that name a user, by slug."""
        entries = self._cache.organizations.by_index(BY_MEMBER, user)
        return memberships_of(user, [entry.value for entry in entries])

    def membership(self, user: str, slug: str) -> Membership:
        """Return what a user is in an organization.

        Raises
        ------
        ApiError
            404 when there is no such organization, or it does not name the user.
        """
        entry = self._cache.organizations.get(slug)
        found = memberships_of(user, [entry.value]) if entry is not None else []
        if not found:
            raise not_found("organization")
        return found[0]

    async def _begin(
        self, user: str, method: SessionMethod, proven: datetime, agent: str, request_id: str
    ) -> tuple[SessionRow, str]:
        """Begin a session."""
        begun = await self._table.create(
            user,
            method=method,
            agent=agent,
            now=self._clock(),
            life=timedelta(minutes=self._settings.absolute_minutes),
            authenticated_at=proven,
        )
        await self._record("session.create", begun[0], request_id)
        return begun

    async def _record(self, action: str, session: SessionRow, request_id: str) -> None:
        """Write a row into the audit trail of each organization that names the user."""
        for each in self.memberships(session.user):
            await self._audit.add(
                AuditRow(
                    at=self._clock(),
                    request_id=request_id or str(uuid.uuid4()),
                    organization=each.organization.metadata.name,
                    actor=session.user,
                    key_id=None,
                    action=action,
                    target=session.id,
                    result="ok",
                    organization_id=each.organization.identifier,
                    session_id=session.id,
                )
            )


def is_over(session: SessionRow, now: datetime, settings: SessionSettings) -> bool:
    """Return whether a session has ended: it expired, or was ended."""
    idle = timedelta(minutes=settings.idle_minutes)
    return session.ended_at is not None or session.ends_at <= now or session.seen_at + idle <= now


def is_recent(authenticated_at: datetime, now: datetime, settings: SessionSettings) -> bool:
    """Return whether somebody proved a short while ago who they are.

    Parameters
    ----------
    authenticated_at
        When they last did, in UTC.
    now
        The time, in UTC.
    """
    return now - authenticated_at <= timedelta(minutes=settings.recent_minutes)


def not_recent(settings: SessionSettings) -> ApiError:
    """403: what is asked for needs a recent sign-in."""
    return forbidden(
        f"you signed in more than {settings.recent_minutes} minutes ago; sign in again to do this"
    )


def memberships_of(user: str, organizations: list[Organization]) -> list[Membership]:
    """Return the organizations that name a user, by slug; ending ones are none.

    Parameters
    ----------
    user
        As the Organization names its members.
    """
    found = [
        Membership(organization, member.role)
        for organization in organizations
        if organization.metadata.deletion_timestamp is None
        for member in organization.spec.members
        if member.user == user
    ]
    return sorted(found, key=lambda each: each.organization.metadata.name)
