"""Encrypted bodies that are refused: the real Caddy, the real `guest ehbp`."""

import contextlib
import http.client
import re
import socket
import ssl
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from tests.support.clients.http2 import Http2Request
from tests.support.servers.encrypted_bodies import RunningBodies, running_bodies
from tests.support.servers.shim import HOSTNAME, RunningShim, ShimResponse, running_shim
from tests.support.waiting import until_sync

SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
HEADER = "Ehbp-Encapsulated-Key"
NONCE = "Ehbp-Response-Nonce"
OPEN = 400
MEMORY = 100 << 20
"""What a Host adds for our parts, at most."""
STALE = "urn:ietf:params:ehbp:error:key-config"


@contextlib.contextmanager
def running(mode: str, **fields: Any) -> Iterator[tuple[RunningShim, RunningBodies]]:
    """Run a shim with encrypted bodies."""
    with (
        tempfile.TemporaryDirectory(prefix="ehbp") as name,
        running_shim(Path(name), ehbp=mode, **fields) as shim,
        running_bodies(Path(name), shim) as bodies,
    ):
        yield shim, bodies


@pytest.fixture(scope="module")
def required() -> Iterator[tuple[RunningShim, RunningBodies]]:
    with running("required", paths=("/listed", "/ws")) as world:
        yield world


@pytest.fixture(scope="module")
def optional() -> Iterator[tuple[RunningShim, RunningBodies]]:
    with running("optional", paths=("/*",)) as world:
        yield world


def sealed(key: str, text: bytes = b"hello") -> tuple[str, bytes]:
    """Encrypt a body of one frame; return the encapsulated key and the frame."""
    public = X25519PublicKey.from_public_bytes(bytes.fromhex(key))
    whole = SUITE.encrypt(text, public, b"ehbp request")
    frame = whole[32:]
    return whole[:32].hex(), len(frame).to_bytes(4, "big") + frame


def post(shim: RunningShim, body: bytes, path: str = "/listed", **headers: str) -> ShimResponse:
    """Send a body."""
    connection = http.client.HTTPConnection(HOSTNAME)
    with contextlib.closing(shim.connect()) as secure:
        connection.sock = secure
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", path, body=body, headers=named)
        response = connection.getresponse()
        return ShimResponse(response.status, response.headers, response.read())


def test_an_encrypted_body_is_accepted_and_a_path_still_has_to_be_listed(
    required: tuple[RunningShim, RunningBodies],
) -> None:
    shim, bodies = required
    key, frame = sealed(bodies.public_key)
    accepted = post(shim, frame, Ehbp_Encapsulated_Key=key)
    assert accepted.status == 200
    assert len(accepted.header(NONCE) or "") == 64
    assert b"hello" not in accepted.body
    assert post(shim, frame, "/other", Ehbp_Encapsulated_Key=key).status == 404


@pytest.mark.spec("46.11")
def test_damaged_bodies_never_reach_the_container(
    required: tuple[RunningShim, RunningBodies],
) -> None:
    shim, bodies = required
    key, frame = sealed(bodies.public_key)
    other = sealed(X25519PrivateKey.generate().public_key().public_bytes_raw().hex())
    changed = frame[:-1] + bytes([frame[-1] ^ 1])
    for name, (sent, body), status in (
        ("changed", (key, changed), 422),
        ("for another key", other, 422),
        ("of another request", (sealed(bodies.public_key)[0], frame), 422),
        ("cut", (key, frame[:-1]), 400),
        ("cut in its length", (key, frame[:3]), 400),
        ("without a frame", (key, bytes(4)), 400),
        ("too large", (key, (2**32 - 1).to_bytes(4, "big")), 413),
        ("header", ("xyz", frame), 400),
        ("upper case", (key.upper(), frame), 400),
    ):
        refused = post(shim, body, "/listed?damaged", Ehbp_Encapsulated_Key=sent)
        assert refused.status == status, name
        assert refused.header("Content-Type") == "application/problem+json", name
        assert refused.header(NONCE) is None, name
        assert set(refused.data) == {"type", "title", "status", "detail"}, name
        assert (refused.data["type"] == STALE) == (status == 422), name
    assert "/listed?damaged" not in shim.upstream.targets


def test_frames_that_are_sent_again_are_refused(
    required: tuple[RunningShim, RunningBodies],
) -> None:
    """The refusal is encrypted: by then it is known who asked."""
    shim, bodies = required
    key, frame = sealed(bodies.public_key)
    for body in (frame + frame, frame + bytes(4) + frame[:9]):
        refused = post(shim, body, Ehbp_Encapsulated_Key=key)
        assert refused.status == 400
        assert len(refused.header(NONCE) or "") == 64
        assert b"frame" not in refused.body


def test_a_request_that_is_sent_again_is_processed_again(
    required: tuple[RunningShim, RunningBodies],
) -> None:
    """The protocol does not refuse it; who sends it cannot read the response."""
    shim, bodies = required
    key, frame = sealed(bodies.public_key)
    first, second = (post(shim, frame, Ehbp_Encapsulated_Key=key) for _ in range(2))
    assert (first.status, second.status) == (200, 200)
    assert first.header(NONCE) != second.header(NONCE)


@pytest.mark.spec("46.11")
def test_required_refuses_what_is_not_encrypted(
    required: tuple[RunningShim, RunningBodies],
) -> None:
    shim, _ = required
    for refused in (
        post(shim, b'{"prompt": "secret"}', "/listed?plain"),
        shim.request("/ws", headers={"Connection": "Upgrade", "Upgrade": "websocket"}),
    ):
        assert (refused.status, refused.data["title"]) == (400, "Encrypted body required")
        assert refused.header("Content-Type") == "application/problem+json"
    assert not {"/listed?plain", "/ws"} & set(shim.upstream.targets)
    assert shim.request("/listed").status == 200
    assert post(shim, b"").status == 200
    bodyless = shim.request("/listed", headers={HEADER: "ab" * 32})
    assert (bodyless.status, bodyless.header(NONCE)) == (200, None)


def test_optional_leaves_other_requests_to_the_container(
    optional: tuple[RunningShim, RunningBodies],
) -> None:
    shim, bodies = optional
    shim.upstream.headers[NONCE] = "ab" * 32
    try:
        plain = post(shim, b"hello", "/echo")
        key, frame = sealed(bodies.public_key)
        twice = post(shim, frame, "/echo", Ehbp_Encapsulated_Key=key)
    finally:
        del shim.upstream.headers[NONCE]
    assert (plain.status, plain.body, plain.header(NONCE)) == (200, b"hello", None)
    assert (twice.status, len(twice.header(NONCE) or "")) == (200, 64)
    assert twice.header(NONCE) != "ab" * 32


def over_http2(shim: RunningShim, key: str | None, path: str = "/listed") -> Http2Request:
    """Begin a POST over HTTP/2."""
    connection: ssl.SSLSocket = shim.connect(protocols=("h2",))
    headers = [
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", HOSTNAME),
        (":path", path),
        *([] if key is None else [(HEADER.lower(), key)]),
    ]
    return Http2Request(connection, headers, ends=False)


def test_the_same_holds_over_http2(required: tuple[RunningShim, RunningBodies]) -> None:
    shim, bodies = required
    key, frame = sealed(bodies.public_key)
    for sent, body, status in (
        (key, frame, 200),
        (key, frame[:-1], 400),
        (key, frame[:-1] + b"\0", 422),
        (None, b"plain", 400),
        (None, b"", 200),
    ):
        with over_http2(shim, sent) as request:
            request.send(body, ends=True)
            request.read_until()
            assert request.status == status, body
            assert (NONCE.lower() in request.headers) == (status == 200 and sent is not None)


def test_a_kill_within_a_response_resets_a_stream_of_http2() -> None:
    with running("optional", paths=("/*",)) as (shim, bodies):
        key, frame = sealed(bodies.public_key)
        with over_http2(shim, key, "/stream") as request:
            request.send(frame, ends=True)
            # A frame of the event: its length, the event, a tag.
            request.read_until((len(b"data: first\n\n") + 16).to_bytes(4, "big"))
            bodies.kill()
            request.read_until()
            assert (request.status, request.reset) == (200, True)


def test_memory_is_bounded_whatever_clients_hold_back() -> None:
    """Clients hold hundreds of requests open, and send all but the end of the largest frames."""
    with running("optional", paths=("/*",)) as (shim, bodies), contextlib.ExitStack() as stack:

        def hold(body: bytes, size: int, key: str) -> None:
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.settimeout(60)
            connection.connect(str(bodies.folder / "e" / "ehbp.sock"))
            head = f"POST /upload HTTP/1.1\r\nHost: a\r\n{HEADER}: {key}\r\n"
            connection.sendall(f"{head}Content-Length: {size}\r\n\r\n".encode() + body)

        key, frame = sealed(bodies.public_key, bytes(4000))
        for number in range(OPEN):
            hold(frame, len(frame) + 1, key)
            until_sync(partial(_is_asked, shim, number + 1), every=0.01, what="a request")
        key, frame = sealed(bodies.public_key, bytes(16 << 20))
        hold(frame[:-1], len(frame), key)
        assert _highest_memory(bodies) < MEMORY


def _is_asked(shim: RunningShim, count: int) -> bool:
    return len(shim.upstream.targets) >= count


def _highest_memory(bodies: RunningBodies) -> int:
    """Return the peak memory of the part in bytes."""
    assert bodies.process is not None
    text = Path(f"/proc/{bodies.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) * 1024
