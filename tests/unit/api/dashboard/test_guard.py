"""The guard in front of pages: how much of the facade one person may take."""

from datetime import UTC, datetime, timedelta

import pytest
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message

from cloister_api.dashboard.guard import DashboardGuard
from cloister_api.errors import ApiError
from cloister_api.http.callers import Callers
from cloister_api.http.metrics import HttpMetrics
from cloister_api.http.middleware import Shutdown
from cloister_api.ledger.keys.sessions import SessionMethod, SessionRow
from cloister_api.sessions.settings import DashboardSettings
from cloister_api.settings import LimitSettings

NOW = datetime(2026, 11, 27, tzinfo=UTC)
COOKIE = "__Host-cloister"


def session_of(user: str) -> SessionRow:
    """Return a session of a user."""
    life = timedelta(hours=1)
    return SessionRow("1", user, SessionMethod.OIDC, "", NOW, NOW, NOW, NOW + life, None, None)


def error_page(error: ApiError, *_: object) -> Response:
    """Return the page of an error."""
    return PlainTextResponse(error.message, error.status)


async def status_of(user: str, callers: Callers) -> int:
    """Return the status of a page that somebody requests."""

    async def find(value: str, *, used: bool) -> SessionRow | None:
        del value, used
        return session_of(user)

    guard = DashboardGuard(
        PlainTextResponse("page"),
        settings=DashboardSettings(address="https://console.example.test"),
        find=find,
        cookie=lambda: COOKIE,
        take=lambda _, writes: (),
        callers=callers,
        error_page=error_page,
        metrics=HttpMetrics(),
        shutdown=Shutdown(),
    )
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"console.example.test"), (b"cookie", f"{COOKIE}=x".encode())]
    scope = {"type": "http", "method": "GET", "path": "/organizations", "query_string": b""}
    await guard({**scope, "headers": headers}, receive, send)
    status: int = sent[0]["status"]
    return status


async def test_a_user_with_the_name_of_an_organization_takes_none_of_its_requests() -> None:
    callers = Callers(LimitSettings(organization_requests=1), {})
    callers.enter("acme")
    assert await status_of("acme", callers) == 200
    assert await status_of("acme", callers) == 200
    with pytest.raises(ApiError, match="in progress"):
        callers.enter("acme")
