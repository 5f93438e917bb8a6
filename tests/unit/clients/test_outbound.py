"""Requests to foreign servers: bounded, without cookies, without the environment."""

import gzip
import ssl
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from cloister_clients.address_guard import Guard
from cloister_clients.outbound import ResponseTooLarge, fetch, guarded_client, retry_after, trust
from tests.support.stand_ins.http_server import HttpServer, Reply, Request, serve

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def client_for(*servers: HttpServer) -> httpx.AsyncClient:
    """Build a client that may call these servers."""
    hosts = frozenset(server.host for server in servers)
    guard = Guard(allow_private=hosts, plain_http=hosts)
    return guarded_client(guard, context=trust(None), timeout_seconds=5, user_agent="cloister")


async def test_a_body_is_read_up_to_its_limit() -> None:
    with serve(lambda request: Reply(200, b"x" * 100)) as server:
        async with client_for(server) as client:
            answer = await fetch(client, "GET", server.base, headers={"A": "b"}, limit=100)
            assert (answer.status, len(answer.body)) == (200, 100)
            with pytest.raises(ResponseTooLarge, match="beyond 99 bytes"):
                await fetch(client, "GET", server.base, headers={}, limit=99)
        first = server.requests[0].headers
        assert (first["a"], first["user-agent"]) == ("b", "cloister")
        assert first["accept-encoding"] == "identity"


async def test_credentials_do_not_follow_a_redirect_to_another_server() -> None:
    with serve(lambda request: Reply(200)) as other:

        def answer(request: Request) -> Reply:
            target = "/end" if request.path == "/same" else other.base
            return (
                Reply(200) if request.path == "/end" else Reply(307, headers={"Location": target})
            )

        with serve(answer) as server:
            async with client_for(server, other) as client:
                for path in ("/same", "/other"):
                    headers = {"Authorization": "Bearer x"}
                    await fetch(client, "GET", server.base + path, headers=headers, limit=0)
            assert [request.headers.get("authorization") for request in server.requests] == [
                "Bearer x"
            ] * 3
        assert "authorization" not in other.requests[0].headers


async def test_cookies_and_proxies_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with serve(lambda request: Reply(200, headers={"Set-Cookie": "a=b"})) as server:
        async with client_for(server) as client:
            for _ in range(2):
                await fetch(client, "GET", server.base, headers={}, limit=0)
        assert all("cookie" not in request.headers for request in server.requests)


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("30", 30.0),
        ("0", 0.0),
        ("Sun, 22 Nov 2026 12:01:00 GMT", 60.0),
        ("Sun, 22 Nov 2026 11:00:00 GMT", 0.0),
        ("99999999999999999999", 86400.0),
        ("Sun, 22 Nov 2099 11:00:00 GMT", 86400.0),
        ("", None),
        ("-5", None),
        ("soon", None),
        ("\u0663", None),
    ],
)
def test_the_wait_that_a_server_asks_for(value: str, want: float | None) -> None:
    assert retry_after({"retry-after": value}, NOW) == want
    assert retry_after({}, NOW) is None


def test_authorities_come_from_a_file_alone(tmp_path: Path) -> None:
    empty = tmp_path / "ca.pem"
    with pytest.raises(OSError, match="No such file"):
        trust(empty)
    empty.write_text("")
    with pytest.raises(ssl.SSLError):
        trust(empty)
    assert trust(None).get_ca_certs()


async def test_a_body_in_another_coding_is_not_unpacked() -> None:
    packed = gzip.compress(b"x" * 50_000_000)
    with serve(lambda request: Reply(200, packed, {"Content-Encoding": "gzip"})) as server:
        async with client_for(server) as client:
            with pytest.raises(httpx.DecodingError, match="'gzip', which was not asked for"):
                await fetch(client, "GET", server.base, headers={}, limit=100_000)
