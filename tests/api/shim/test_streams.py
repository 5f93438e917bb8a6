"""Streaming through the shim with the gate in between: the real Caddy, the real gate."""

import contextlib
import json
import re
import ssl
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.clients.http2 import Http2Request
from tests.support.servers.key_gate import running_gate
from tests.support.servers.shim import HOSTNAME, RunningShim, running_shim
from tests.support.stand_ins.http_server import Reply
from tests.support.stand_ins.key_check import running_key_check
from tests.support.stand_ins.upstream import BLOCK
from tests.support.waiting import until_sync

GIBIBYTE = 1 << 30
MEMORY = 160 << 20
"""Maximum memory of the shim in bytes; far below the size of the forwarded bodies."""
KEY = "Authorization: Bearer tk_good\r\n"
HEADER_MILLIS = 4_000
"""Timeout far below an enclave's, so that a test can observe it. It is that of handshakes too,
which a busy machine does not make at once."""


@pytest.fixture(scope="module")
def shim() -> Iterator[RunningShim]:
    """Run shim and gate with keys required on every path, and a short header timeout."""
    with (
        tempfile.TemporaryDirectory(prefix="flow") as name,
        running_key_check({"tk_good": Reply(200)}) as check,
        running_shim(
            Path(name),
            header_millis=HEADER_MILLIS,
            authenticated=True,
            authenticated_endpoints=("/*",),
            rate_limit=1000.0,
            rate_burst=1000,
        ) as running,
        running_gate(Path(name), running.spec, check.base),
    ):
        yield running


@pytest.fixture(autouse=True)
def _fresh(shim: RunningShim) -> None:
    shim.upstream.go_on.clear()
    shim.upstream.received = 0


def _highest_memory(shim: RunningShim) -> int:
    """Return Caddy's peak memory in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{shim.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def _read_until(connection: ssl.SSLSocket, mark: bytes) -> bytes:
    seen = b""
    while mark not in seen:
        piece = connection.recv(4096)
        assert piece, seen
        seen += piece
    return seen


def _has_received(shim: RunningShim, count: int) -> bool:
    return shim.upstream.received == count


def _start_upload(shim: RunningShim, framing: str) -> ssl.SSLSocket:
    connection = shim.connect()
    head = f"POST /upload HTTP/1.1\r\nHost: {HOSTNAME}\r\n{KEY}{framing}\r\n\r\n"
    connection.sendall(head.encode())
    return connection


def test_a_request_body_of_a_gibibyte_is_not_buffered(shim: RunningShim) -> None:
    block = bytes(BLOCK)
    with contextlib.closing(_start_upload(shim, f"Content-Length: {GIBIBYTE}")) as connection:
        connection.sendall(block)
        until_sync(lambda: shim.upstream.received == BLOCK, what="the first piece")
        for _ in range(GIBIBYTE // BLOCK - 1):
            connection.sendall(block)
        _read_until(connection, f'"received": {GIBIBYTE}'.encode())
    assert _highest_memory(shim) < MEMORY


def test_a_response_body_of_a_gibibyte_is_not_buffered(shim: RunningShim) -> None:
    with contextlib.closing(shim.connect()) as connection:
        connection.sendall(
            f"GET /many/{GIBIBYTE} HTTP/1.1\r\nHost: {HOSTNAME}\r\n{KEY}\r\n".encode()
        )
        read = len(_read_until(connection, b"\r\n\r\n").partition(b"\r\n\r\n")[2])
        buffer = bytearray(BLOCK)
        while read < GIBIBYTE:
            count = connection.recv_into(buffer)
            assert count
            read += count
    assert read == GIBIBYTE
    assert _highest_memory(shim) < MEMORY


def test_a_chunked_request_body_is_streamed(shim: RunningShim) -> None:
    with contextlib.closing(_start_upload(shim, "Transfer-Encoding: chunked")) as connection:
        for _ in range(3):
            before = shim.upstream.received
            connection.sendall(b"5\r\nhello\r\n")
            until_sync(partial(_has_received, shim, before + 5), what="a piece")
        connection.sendall(b"0\r\n\r\n")
        _read_until(connection, b'"received": 15')


def test_slow_headers_time_out_and_streams_do_not(shim: RunningShim) -> None:
    """A connection without a request is closed; running requests last longer than that."""
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(contextlib.closing(shim.connect()))
        stream.sendall(f"GET /stream HTTP/1.1\r\nHost: {HOSTNAME}\r\n{KEY}\r\n".encode())
        _read_until(stream, b"data: first")
        upload = stack.enter_context(contextlib.closing(_start_upload(shim, "Content-Length: 4")))
        upload.sendall(b"ab")
        talk = stack.enter_context(contextlib.closing(_talk(shim)))
        for _ in range(2):
            slow = stack.enter_context(contextlib.closing(shim.connect()))
            slow.sendall(b"GET /x HTTP/1.1\r\nHost: ")
            assert slow.recv(4096) == b"" or slow.recv(4096) == b""
        upload.sendall(b"cd")
        _read_until(upload, b'"received": 4')
        talk.sendall(b"ping")
        assert talk.recv(4) == b"ping"
        shim.upstream.go_on.set()
        _read_until(stream, b"data: second")


def _talk(shim: RunningShim) -> ssl.SSLSocket:
    """Open a WebSocket."""
    connection = shim.connect()
    connection.sendall(
        f"GET /ws HTTP/1.1\r\nHost: {HOSTNAME}\r\n{KEY}Connection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    assert _read_until(connection, b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
    return connection


def test_a_web_socket_without_a_key_is_refused(shim: RunningShim) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket"}
    assert shim.request("/ws", headers=headers).status == 401


def _over_http2(
    shim: RunningShim, target: str, *more: tuple[str, str], method: str = "GET", ends: bool = True
) -> Http2Request:
    # Over TCP, as all clients of an enclave.
    connection = shim.connect(source="127.0.0.1", protocols=("h2",))
    assert connection.selected_alpn_protocol() == "h2"
    headers = [
        (":method", method),
        (":scheme", "https"),
        (":authority", HOSTNAME),
        (":path", target),
        *more,
    ]
    return Http2Request(connection, headers, ends=ends)


GOOD = ("authorization", "Bearer tk_good")


def test_server_sent_events_are_not_buffered_over_http2(shim: RunningShim) -> None:
    with _over_http2(shim, "/stream", GOOD) as request:
        assert b"second" not in request.read_until(b"data: first")
        shim.upstream.go_on.set()
        request.read_until(b"data: second")
        assert request.status == 200


def test_a_request_body_is_streamed_over_http2(shim: RunningShim) -> None:
    with _over_http2(shim, "/upload", GOOD, method="POST", ends=False) as request:
        request.send(bytes(BLOCK))
        until_sync(lambda: shim.upstream.received == BLOCK, what="the first piece")
        request.send(bytes(BLOCK), ends=True)
        reported = json.loads(request.read_until())
    assert reported["received"] == 2 * BLOCK
    assert reported["headers"]["X-Forwarded-Host"] == HOSTNAME


@pytest.mark.parametrize("target", ["/x", "//x", "/%2e%2e/x", "/x/../y"])
def test_api_keys_are_checked_over_http2(shim: RunningShim, target: str) -> None:
    with _over_http2(shim, target) as request:
        request.read_until()
        assert request.status == 401


def test_path_and_cors_rules_hold_over_http2(shim: RunningShim) -> None:
    with _over_http2(shim, "/x", GOOD, ("origin", "https://app.example")) as request:
        request.read_until()
        assert request.status == 200
        assert request.headers["access-control-allow-origin"] == "https://app.example"
