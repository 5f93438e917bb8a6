"""The guard in front of pages: how much of the facade one person may take."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message

from cloister_api.dashboard.guard import DashboardGuard, cookie_in
from cloister_api.errors import ApiError
from cloister_api.http.connections import MAX_HEADERS
from cloister_api.http.metrics import HttpMetrics
from cloister_api.http.middleware import Callers, Shutdown
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


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("__Host-cloister=x", "x"),
        ('theme=dark; other="a\\"b"; __Host-cloister = x ;', "x"),
        ("__Host-cloister=a=b", "a=b"),
        ('__Host-cloister="v1.YQ=="', "v1.YQ=="),
        ("__host-cloister=x; a__Host-cloister=x; __Host-cloister-next=x", ""),
        ("__Host-cloister", ""),
        ("", ""),
    ],
)
def test_the_one_cookie_is_found_among_others(header: str, value: str) -> None:
    assert cookie_in(Headers({"cookie": header}), COOKIE) == value


@pytest.mark.parametrize("unit", [";", " ", "=", '"', "\\", "\\0", "a=b;", 'a="\\'])
def test_the_longest_header_of_cookies_costs_little(unit: str) -> None:
    """Anybody may send it; the standard library's parser took 2.8 s."""
    headers = Headers({"cookie": f'a="{unit * (MAX_HEADERS // len(unit))}'})
    begun = time.thread_time()
    assert cookie_in(headers, COOKIE) == ""
    assert time.thread_time() - begun < 0.25  # 0.01 s.
