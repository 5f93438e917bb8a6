"""Encrypted bodies: unmodified clients of others, the real Caddy, the real `guest ehbp`."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.support.programs.ehbp_clients import CLIENTS, foreign_request
from tests.support.programs.foreign_packages import Language
from tests.support.servers.encrypted_bodies import RunningBodies, running_bodies
from tests.support.servers.key_gate import running_gate
from tests.support.servers.shim import RunningShim, running_shim
from tests.support.stand_ins.http_server import Reply
from tests.support.stand_ins.key_check import running_key_check
from tests.support.waiting import until_sync

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")

NONCE = "ehbp-response-nonce"
FRAME = 1 << 16
"""What the client in Python encrypts at once."""
HEADER = "Ehbp-Encapsulated-Key"


@contextmanager
def encrypted(**fields: Any) -> Iterator[tuple[RunningShim, RunningBodies]]:
    """Run a shim with encrypted bodies."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ehbp")))
        shim = stack.enter_context(running_shim(folder, **fields))
        yield shim, stack.enter_context(running_bodies(folder, shim))


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[RunningShim, RunningBodies]]:
    with encrypted(ehbp="optional", paths=("/*",), origins=("https://app.example",)) as running:
        yield running


@pytest.fixture
def shim(world: tuple[RunningShim, RunningBodies]) -> RunningShim:
    shim = world[0]
    shim.upstream.go_on.clear()
    shim.upstream.targets.clear()
    shim.upstream.received = 0
    return shim


def url(shim: RunningShim) -> str:
    """Return the address of a shim."""
    return f"https://127.0.0.1:{shim.port}"


@pytest.mark.spec("46.11")
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_of_others_gets_its_response(shim: RunningShim, client: Language) -> None:
    text = "grüezi " * 20_000
    with foreign_request(client, url(shim), "/echo", pieces=[text, "end"]) as request:
        request.send_more()
        assert request.response() == (200, f"{text}end")
    assert NONCE in request.events[0]["headers"]
    assert "content-length" not in request.events[0]["headers"]


@pytest.mark.parametrize("client", CLIENTS)
def test_the_container_sees_the_request_as_without_encryption(
    shim: RunningShim, client: Language
) -> None:
    target = "/a%2Fb/%7e?x=1;y&%zz"
    more = {"X-Own": "1", "X-Forwarded-For": "192.0.2.9", "X-Real-IP": "192.0.2.9"}
    with foreign_request(client, url(shim), target, pieces=["hello"], headers=more) as request:
        status, text = request.response()
    seen = json.loads(text)
    named = {name.lower(): value for name, value in seen["headers"].items()}
    assert (status, seen["method"], seen["received"]) == (200, "POST", 5)
    assert shim.upstream.targets == [seen["target"]]
    assert seen["target"] == target
    assert named["x-own"] == "1"
    assert named["x-forwarded-for"] == "127.0.0.1"
    assert named["x-forwarded-proto"] == "https"
    assert "proto=https" in named["forwarded"]
    assert named["x-forwarded-host"] == named["host"] == f"127.0.0.1:{shim.port}"
    assert not {HEADER.lower(), "x-real-ip"} & named.keys()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_response_is_a_stream(shim: RunningShim, client: Language) -> None:
    with foreign_request(client, url(shim), "/stream", pieces=["{}"]) as request:
        assert request.next()["status"] == 200
        assert request.next() == {"piece": "data: first\n\n"}
        shim.upstream.go_on.set()
        assert request.next() == {"piece": "data: second\n\n"}
        assert request.next() == {"end": True}


def test_a_request_is_a_stream(shim: RunningShim) -> None:
    pieces = [letter * FRAME for letter in "abc"]
    with foreign_request("python", url(shim), "/upload", pieces=pieces) as request:
        for count in (1, 2, 3):
            until_sync(partial(_has_received, shim, count * FRAME), what="a piece")
            if count < len(pieces):
                request.send_more()
        status, text = request.response()
    assert (status, json.loads(text)["received"]) == (200, 3 * FRAME)


def _has_received(shim: RunningShim, count: int) -> bool:
    return shim.upstream.received == count


@pytest.mark.parametrize("client", CLIENTS)
def test_a_stale_key_is_told_and_nothing_processed(shim: RunningShim, client: Language) -> None:
    stale = X25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    with foreign_request(client, url(shim), "/echo", pieces=["hello"], key=stale) as request:
        assert request.next()["error"] == "KeyConfigMismatchError"
    assert shim.upstream.targets == []


@pytest.mark.parametrize("client", CLIENTS)
def test_the_published_key_is_that_of_the_configuration(
    world: tuple[RunningShim, RunningBodies], client: Language
) -> None:
    shim, bodies = world
    response = shim.request("/.well-known/hpke-keys")
    assert response.header("Content-Type") == "application/ohttp-keys"
    assert response.body.hex() == f"000020{bodies.public_key}000400010002"
    key = bodies.public_key
    with foreign_request(client, url(shim), "/echo", pieces=["hello"], key=key) as request:
        assert request.response() == (200, "hello")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_request_without_a_body_is_not_encrypted(shim: RunningShim, client: Language) -> None:
    with foreign_request(client, url(shim), "/x", method="GET") as request:
        status, text = request.response()
    assert (status, json.loads(text)["method"]) == (200, "GET")
    assert NONCE not in request.events[0]["headers"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_kill_within_a_response_is_an_error_and_the_key_stays(client: Language) -> None:
    with encrypted(ehbp="required") as (shim, bodies):
        key = bodies.public_key
        with foreign_request(client, url(shim), "/stream", pieces=["{}"]) as request:
            assert request.next()["status"] == 200
            assert request.next() == {"piece": "data: first\n\n"}
            bodies.kill()
            ended = request.next()
            assert "error" in ended, ended
        away = shim.request("/x", headers={HEADER: "ab"})
        assert (away.status, away.data["error"]["type"]) == (502, "server_error")
        bodies.start()
        assert bodies.public_key == key
        with foreign_request(client, url(shim), "/echo", pieces=["again"], key=key) as request:
            assert request.response() == (200, "again")
        assert bodies.log == ""


def test_a_kill_within_a_request_never_gives_the_container_an_end() -> None:
    pieces = [letter * FRAME for letter in "abc"]
    with encrypted(ehbp="required") as (shim, bodies):
        with foreign_request("python", url(shim), "/upload", pieces=pieces) as request:
            until_sync(partial(_has_received, shim, FRAME), what="a piece")
            bodies.kill()
            request.send_more()
            request.send_more()
            ended = request.next()
        assert ended.get("status", 502) == 502, ended
        until_sync(lambda: shim.upstream.cut == 1, what="the cut at the container")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_response_that_a_container_cuts_is_an_error(shim: RunningShim, client: Language) -> None:
    with foreign_request(client, url(shim), "/cut", pieces=["{}"]) as request:
        events = [request.next(), request.next(), request.next()]
    assert events[:2] == [events[0], {"piece": "half"}]
    assert "error" in events[2], events


def test_browsers_of_other_origins_may_read_the_nonce(shim: RunningShim) -> None:
    response = shim.request("/x", headers={"Origin": "https://app.example"})
    assert response.header("Access-Control-Expose-Headers") == "Ehbp-Response-Nonce"
    refused = {"Origin": "https://other.example", HEADER: "ab" * 32}
    assert shim.request("/x", headers=refused).status == 403


@pytest.mark.parametrize("client", CLIENTS)
def test_keys_and_rates_hold_for_encrypted_requests(client: Language) -> None:
    fields: dict[str, Any] = {
        "authenticated": True,
        "authenticated_endpoints": ("/*",),
        "rate_limit": 0.001,
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ehbp")))
        check = stack.enter_context(running_key_check({"tk_good": Reply(200)}))
        shim = stack.enter_context(running_shim(folder, ehbp="required", rate_burst=1, **fields))
        bodies = stack.enter_context(running_bodies(folder, shim))
        stack.enter_context(running_gate(folder, shim.spec, check.base))
        good = {"Authorization": "Bearer tk_good"}
        for headers, expected in ((good, "200"), (good, "429"), ({}, "401")):
            sent = foreign_request(
                client, url(shim), "/echo", pieces=["a"], key=bodies.public_key, headers=headers
            )
            with sent as request:
                # The one client hands an unencrypted refusal on, the other calls it an error.
                event = request.next()
                assert str(event.get("status", "error")) in {expected, "error"}
                assert ("error" in event) <= (expected != "200")
        assert shim.upstream.targets == ["/echo"]
