"""The guard in front of every route, on its own: bodies in pieces, applications that fail."""

from typing import Any

import msgspec
import pytest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from cloister_api.auth.authenticator import Principal
from cloister_api.errors import ApiError
from cloister_api.http.bodies import MAX_BODY
from cloister_api.http.metrics import HttpMetrics
from cloister_api.http.middleware import Callers, RequestGuard, Shutdown, TakeToken, needs_key
from cloister_api.settings import LimitSettings
from cloister_crds.kinds import Organization
from cloister_crds.kinds.organization import Role

ORGANIZATION = Organization.read({"metadata": {"name": "acme"}, "spec": {"namespace": "org-acme"}})
PRINCIPAL = Principal("k1", "ada", ORGANIZATION, role=Role.ADMIN)
LITERAL = "/api/containers/hosts"
"""A path without parameters."""


class Inner:
    """An application that reads its body and answers with what it got."""

    def __init__(self) -> None:
        self.scope: Scope = {}
        self.body = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read and answer."""
        self.scope = scope
        more = True
        while more:
            message = await receive()
            self.body += message.get("body", b"")
            more = message.get("more_body", False)
        await Response(b"fine")(scope, receive, send)


async def admit(authorization: str | None) -> Principal:
    if authorization != "good":
        raise ApiError(401, "UNAUTHORIZED", "no")
    return PRINCIPAL


async def ask(
    app: Any,
    *pieces: bytes,
    path: str = "/api/containers",
    query: bytes = b"",
    headers: dict[str, str] | None = None,
    take: TakeToken = lambda _, writes: (),
    shutdown: Shutdown | None = None,
) -> tuple[int, dict[str, str], bytes]:
    given = {"authorization": "good", **(headers or {})}
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": query,
        "headers": [(k.encode(), v.encode()) for k, v in given.items()],
    }
    waiting = [
        {"type": "http.request", "body": piece, "more_body": place < len(pieces) - 1}
        for place, piece in enumerate(pieces)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    guard = RequestGuard(
        app,
        authenticate=admit,
        take=take,
        callers=Callers(LimitSettings(), {}),
        metrics=HttpMetrics(),
        shutdown=shutdown or Shutdown(),
        hot={("POST", "/api/hot"): Route("/api/hot", Response(b"from memory"), methods=["POST"])},
        literal={LITERAL: frozenset({"GET"})},
    )
    await guard(scope, receive, send)
    answered = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    return sent[0]["status"], answered, b"".join(m.get("body", b"") for m in sent[1:])


JSON = {"content-type": "application/json", "transfer-encoding": "chunked"}


async def test_a_body_in_pieces_arrives_whole() -> None:
    inner = Inner()
    status, headers, _ = await ask(inner, b'{"a"', b":1", b"}", headers=JSON)
    assert status == 200
    assert inner.body == b'{"a":1}'
    assert inner.scope["state"]["principal"] is PRINCIPAL
    assert headers["x-request-id"] == inner.scope["state"]["request_id"]


@pytest.mark.parametrize(
    ("path", "query", "headers", "answered"),
    [
        ("/api/hot", b"", {}, b"from memory"),
        ("/api/hot", b"limit=1", {}, b"fine"),
        ("/api/hot", b"", {"x-consistency-token": "7"}, b"fine"),
        ("/api/hotter", b"", {}, b"fine"),
    ],
)
async def test_what_comes_all_the_time_goes_a_way_of_its_own_when_it_asks_for_nothing_more(
    path: str, query: bytes, headers: dict[str, str], answered: bytes
) -> None:
    _, sent, body = await ask(Inner(), path=path, query=query, headers=headers)
    assert body == answered
    assert sent["x-request-id"]
    status, _, _ = await ask(Inner(), path=path, headers={"authorization": "bad"})
    assert status == 401


@pytest.mark.spec("20.14")
async def test_the_bound_of_a_body_is_exact() -> None:
    inner = Inner()
    assert (await ask(inner, b" " * MAX_BODY, headers=JSON))[0] == 200
    assert (await ask(Inner(), b" " * MAX_BODY, b" ", headers=JSON))[0] == 413
    declared = {**JSON, "content-length": str(MAX_BODY + 1)}
    untouched = Inner()
    assert (await ask(untouched, headers=declared))[0] == 413
    assert untouched.scope == {}


@pytest.mark.spec("20.5")
async def test_authentication_comes_first() -> None:
    inner = Inner()
    wrong = {"authorization": "bad", "content-length": str(MAX_BODY * 2)}
    status, _, body = await ask(inner, headers=wrong)
    assert status == 401
    assert msgspec.json.decode(body)["code"] == "UNAUTHORIZED"
    assert inner.scope == {}


@pytest.mark.spec("3.2", "20.15")
async def test_an_application_that_fails_answers_500_with_the_request_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("secret detail")

    status, headers, body = await ask(fails)
    answer = msgspec.json.decode(body)
    assert status == 500
    assert answer["code"] == "INTERNAL_ERROR"
    assert answer["request_id"] == headers["x-request-id"]
    assert "secret detail" not in body.decode()
    assert "secret detail" in caplog.text


@pytest.mark.spec("20.6")
@pytest.mark.parametrize(
    ("path", "needed"),
    [
        ("/api", True),
        ("/api/", True),
        ("/api/containers", True),
        ("/api/config/models", False),
        ("/api/shim/cert", False),
        ("/api/webhooks/releases", False),
        ("/apis", False),
        ("/healthz", False),
        ("/v1/models", False),
    ],
)
def test_which_paths_need_a_key(path: str, *, needed: bool) -> None:
    assert needs_key(path) is needed


@pytest.mark.spec("20.9", "20.20")
async def test_a_rate_is_told_with_every_answer_and_refused_with_429() -> None:
    headers = (("ratelimit", '"key";r=0;t=2'),)

    def refuse(_: Principal, *, writes: bool) -> tuple[tuple[str, str], ...]:
        assert writes
        raise ApiError(429, "RATE_LIMITED", "no", retry_after=2, headers=headers)

    inner = Inner()
    _, allowed, _ = await ask(inner, take=lambda _, writes: headers)
    assert allowed["ratelimit"] == '"key";r=0;t=2'
    untouched = Inner()
    status, refused, body = await ask(untouched, take=refuse)
    assert (status, untouched.scope) == (429, {})
    assert (refused["ratelimit"], refused["retry-after"]) == ('"key";r=0;t=2', "2")
    assert msgspec.json.decode(body)["code"] == "RATE_LIMITED"


async def test_a_path_without_parameters_is_no_value_of_one() -> None:
    untouched = Inner()
    status, headers, body = await ask(untouched, path=LITERAL)
    assert (status, headers["allow"], untouched.scope) == (405, "GET", {})
    assert msgspec.json.decode(body)["code"] == "METHOD_NOT_ALLOWED"


async def test_a_refused_request_is_counted_under_its_path(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An alert on webhooks that are refused reads it, and no route has been found yet."""
    caplog.set_level("INFO", "cloister_api.http.access_log")
    status, _, _ = await ask(Inner(), path=LITERAL, headers={"authorization": "bad"})
    assert status == 401
    assert f"POST {LITERAL} 401" in caplog.text


async def test_clients_are_told_to_leave_when_the_process_ends() -> None:
    _, headers, _ = await ask(Inner())
    assert "connection" not in headers
    _, headers, _ = await ask(Inner(), shutdown=Shutdown(begun=True))
    assert headers["connection"] == "close"


async def test_a_request_leaves_one_line_without_its_path(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "cloister_api.http.access_log")
    await ask(Inner(), path="/api/keys/tk_made-up-value")
    (record,) = [one for one in caplog.records if one.name == "cloister_api.http.access_log"]
    assert "POST (unknown path) 200" in record.getMessage()
    assert "acme ada key k1" in record.getMessage()
    assert "tk_" not in caplog.text
