"""The REST API for who is signed in: the routes of admin keys, at the dashboard's listener.

The cookie of a session takes the place of the admin key; at the API's own listener it counts for
nothing. A request counts only from a page of the dashboard. What somebody may do stands in the
Organization, which is read at each request.
"""

from collections.abc import Callable
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cloister_api.auth.authenticator import Principal
from cloister_api.auth.roles import require, right_of
from cloister_api.dashboard.guard import FindSession, refuse_elsewhere, session_in
from cloister_api.dashboard.rendering import SECURITY_HEADERS
from cloister_api.errors import ApiError, bad_request, forbidden
from cloister_api.http.middleware import DOOR, ORGANIZATION
from cloister_api.sessions.sessions import Membership, Sessions
from cloister_api.sessions.settings import DashboardSettings

SESSION_PATH = "/api/session"
"""Path that says who is signed in, of which organization ever."""
KEYS_ELSEWHERE = ApiError(
    HTTPStatus.UNAUTHORIZED,
    "UNAUTHORIZED",
    "this is the address of the dashboard, where sessions count and admin keys do not; send admin "
    "keys to the address of the API",
)


class SessionApi:
    """Passes requests of sessions to the API.

    Parameters
    ----------
    sessions
        Returns what knows of which organizations somebody is a member.
    """

    def __init__(
        self,
        api: ASGIApp,
        *,
        settings: DashboardSettings,
        find: FindSession,
        cookie: Callable[[], str],
        sessions: Callable[[], Sessions],
    ) -> None:
        self._api = api
        self._settings = settings
        self._find = find
        self._cookie = cookie
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request of the API."""

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS:
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._api({**scope, DOOR: self._admit}, receive, send_secured)

    async def _admit(self, scope: Scope, headers: Headers) -> Principal:
        """Return who is signed in, in the organization that the request means.

        Raises
        ------
        ApiError
            421 at another host; 401 with an admin key or without a session; 403 from another
            origin, and for what the role may not do; 400 or 404 when it is not clear which
            organization is meant.
        """
        if "authorization" in headers:
            raise KEYS_ELSEWHERE
        method, path = scope["method"], scope["path"]
        refuse_elsewhere(self._settings, method, headers, navigable=False)
        session = await session_in(headers, self._cookie(), self._find, used=True)
        if session is None:
            raise ApiError(
                401, "UNAUTHORIZED", f"nobody is signed in; open {self._settings.address}/session"
            )
        member = self._meant(session.user, headers.get(ORGANIZATION), path)
        require(member.role, right_of(method, path))
        return Principal(
            "",
            session.user,
            member.organization,
            role=member.role,
            session_id=session.id,
            session_ends_at=session.ends_at,
            authenticated_at=session.authenticated_at,
        )

    def _meant(self, user: str, slug: str | None, path: str) -> Membership:
        """Return what somebody is in the organization that a request means.

        Raises
        ------
        ApiError
            404 when it does not name them, 403 when none does, 400 when several do and the request
            says nothing.
        """
        sessions = self._sessions()
        if slug is not None:
            return sessions.membership(user, slug)
        found = sessions.memberships(user)
        if not found:
            raise forbidden("no organization names you as a member; ask an administrator of one")
        if len(found) > 1 and path != SESSION_PATH:
            slugs = ", ".join(each.organization.metadata.name for each in found)
            raise bad_request(
                "X-Organization", f"X-Organization: name the organization; you are in {slugs}"
            )
        return found[0]
