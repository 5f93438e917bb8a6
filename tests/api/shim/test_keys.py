"""API keys at the shim: the real Caddy and the real gate, with a stand-in for the API's check."""

import http.client
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.programs.guest_part import RunningPart
from tests.support.servers.key_gate import running_gate
from tests.support.servers.shim import HOSTNAME, RunningShim, ShimResponse, running_shim
from tests.support.stand_ins.http_server import Reply
from tests.support.stand_ins.key_check import KeyCheck, running_key_check
from tests.support.waiting import until_sync

ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/admin/*",
    "/files*",
    "/caf%C3%A9",
    "/{http.request.host}/(x[*",
)
ORIGIN = {"Origin": "https://app.example"}


@dataclass(frozen=True)
class KeyProtectedShim:
    """Shim, gate and key check of an enclave."""

    shim: RunningShim
    """Caddy and the upstream."""
    gate: RunningPart
    """The gate."""
    check: KeyCheck
    """The stand-in."""

    def request(self, target: str, key: str | None = None, **more: str) -> ShimResponse:
        """Send a request with a key."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return self.shim.request(target, headers=headers | more)


def _answers() -> dict[str, Reply]:
    return {
        "tk_good": Reply(200, b"{}"),
        "tk_foreign": Reply(403, b'{"error": "internal detail"}'),
        "tk_capped": Reply(402),
        "tk_busy": Reply(429, headers={"Retry-After": "7"}),
    }


@pytest.fixture(scope="module")
def world() -> Iterator[KeyProtectedShim]:
    with (
        tempfile.TemporaryDirectory(prefix="gate") as name,
        running_key_check(_answers()) as check,
        running_shim(
            Path(name),
            paths=("/*",),
            origins=("https://app.example",),
            authenticated=True,
            authenticated_endpoints=ENDPOINTS,
        ) as shim,
        running_gate(Path(name), shim.spec, check.base, cache_seconds=0) as gate,
    ):
        yield KeyProtectedShim(shim, gate, check)


@pytest.fixture
def own() -> Iterator[KeyProtectedShim]:
    """Run shim, gate and key check for one test, with the usual settings and paths."""
    with (
        tempfile.TemporaryDirectory(prefix="gate") as name,
        running_key_check(_answers()) as check,
        running_shim(Path(name), paths=("/open", "/v1/*"), authenticated=True) as shim,
        running_gate(Path(name), shim.spec, check.base) as gate,
    ):
        yield KeyProtectedShim(shim, gate, check)


@pytest.mark.spec("29.15")
@pytest.mark.parametrize(
    ("key", "status", "kind"),
    [
        (None, 401, "invalid_request_error"),
        ("tk_wrong", 401, "invalid_request_error"),
        ("tk_foreign", 403, "invalid_request_error"),
        ("tk_capped", 402, "insufficient_quota"),
        ("tk_busy", 429, "rate_limit_error"),
    ],
)
def test_each_refusal_of_an_api_key(
    world: KeyProtectedShim, key: str | None, status: int, kind: str
) -> None:
    before = len(world.shim.upstream.targets)
    response = world.request("/v1/chat/completions", key)
    assert (response.status, response.data["error"]["type"]) == (status, kind)
    assert response.data["error"]["message"]
    assert response.header("Content-Type") == "application/json"
    assert response.header("WWW-Authenticate") == ("Bearer" if status == 401 else None)
    assert response.header("Retry-After") == ("7" if status == 429 else None)
    assert b"internal detail" not in response.body
    assert len(world.shim.upstream.targets) == before


def test_a_valid_api_key_passes_and_is_forwarded(world: KeyProtectedShim) -> None:
    response = world.request("/v1/chat/completions?q=secret", "tk_good")
    assert response.status == 200
    assert response.data["target"] == "/v1/chat/completions?q=secret"
    assert response.data["headers"]["Authorization"] == "Bearer tk_good"
    assert not [name for name in response.data["headers"] if name.startswith("X-Gate")]
    assert world.check.received[-1] == {
        "api_key": "tk_good",
        "domain": HOSTNAME,
        "requested_host": HOSTNAME,
        "path": "/v1/chat/completions",
    }


def test_the_key_check_receives_the_requested_host(world: KeyProtectedShim) -> None:
    world.request("/v1/admin/x", "tk_good", Host="own.example:443")
    reported = world.check.received[-1]
    assert (reported["domain"], reported["requested_host"]) == (HOSTNAME, "own.example")


@pytest.mark.attack("forged-headers")
def test_clients_cannot_forge_headers_of_the_shim(world: KeyProtectedShim) -> None:
    lies = {"X-Gate-Target": "/open", "X-Gate-Host": "x", "X-Gate-Address": "192.0.2.1"}
    assert world.request("/v1/admin/x", None, **lies).status == 401
    world.request("/v1/admin/x", "tk_good", **lies)
    reported = world.check.received[-1]
    assert (reported["path"], reported["requested_host"]) == ("/v1/admin/x", HOSTNAME)


@pytest.mark.spec("29.14", "47.4")
@pytest.mark.parametrize(
    "target",
    ["/", "/v1/chat", "/v1/chat/completions2", "/v1/chat/completions/x", "/v1/administrator",
     "/v2/files", "/filesystem", "/x?p=/files"],
)  # fmt: skip
def test_other_paths_need_no_api_key(world: KeyProtectedShim, target: str) -> None:
    before = len(world.check.received)
    assert world.request(target).data["target"] == target
    assert len(world.check.received) == before


@pytest.mark.attack("hidden-path-with-key")
@pytest.mark.parametrize(
    "target",
    [
        "/v1/chat/completions/",
        "/v1/chat/completions?stream=1",
        "/V1/Chat/Completions",
        "/v1/chat/%63ompletions",
        "/v1%2Fchat%2fcompletions",
        "/v1%5Cchat\\completions",
        "//v1//chat///completions",
        "/./v1/chat/completions",
        "/v1/chat/x/../completions",
        "/v1/chat/%2e%2E/chat/completions",
        "/open/..%2fv1%2fchat%2fcompletions",
        "/v1;a=b/chat;c/completions;d",
        "/;x/v1/chat/completions",
        "/v1/chat/completions%00",
        "/v1/chat/completions%20",
        "/v1/chat/completions%3Fx",
        "/v1/chat/completions%23x",
        "/v1/chat/completions#x",
        "/v1/chat/completions.json",
        "/v1/chat/completions%2F",
        "/v1/chat/%2563ompletions",
        "/v1%252Fchat/completions",
        "/v1/chat%c0%afcompletions",
        "/v1/admin",
        "/v1/admin/",
        "/v1/ADMIN/users",
        "/v1/admin%2Fusers",
        "/files",
        "/files/a",
        "/Files%2fa",
        "/caf%c3%a9",
        "/CAF%C3%A9/",
        "/{http.request.host}/(x[",
        "/%7Bhttp.request.host%7D//%28X%5B/y",
        f"http://{HOSTNAME}/v1/chat/completions",
        "HTTP://other.example//v1/admin/x",
    ],
)
def test_no_spelling_of_a_path_bypasses_the_key_check(world: KeyProtectedShim, target: str) -> None:
    before = len(world.shim.upstream.targets)
    assert world.request(target).status == 401
    assert len(world.shim.upstream.targets) == before


@pytest.mark.attack("absolute-target")
@pytest.mark.parametrize("target", ["*", "x:v1/chat/completions", "x:v1/admin/users"])
def test_a_target_that_is_not_a_path_is_not_found(world: KeyProtectedShim, target: str) -> None:
    before = len(world.shim.upstream.targets)
    assert world.request(target).status in (400, 404)
    assert len(world.shim.upstream.targets) == before


@pytest.mark.parametrize("method", ["POST", "PUT", "HEAD", "DELETE", "PATCH", "OPTIONS", "BREW"])
def test_every_method_needs_the_api_key(world: KeyProtectedShim, method: str) -> None:
    assert world.shim.request("/v1/admin/x", method=method).status == 401


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Basic dTpw", "Bearer a b", "Bearer tk_good,x", "tk_good"]
)
def test_a_malformed_api_key_is_not_checked_at_the_api(world: KeyProtectedShim, value: str) -> None:
    before = len(world.check.received)
    response = world.shim.request("/v1/admin/x", headers={"Authorization": value})
    assert response.status == 401
    assert len(world.check.received) == before


def test_cors_is_checked_before_api_keys(world: KeyProtectedShim) -> None:
    assert world.request("/v1/admin/x", None, Origin="https://evil.example").status == 403
    preflight = world.shim.request("/v1/admin/x", method="OPTIONS", headers=ORIGIN)
    assert preflight.status == 204
    refused = world.request("/v1/admin/x", "tk_wrong", **ORIGIN)
    assert refused.status == 401
    assert refused.header("Access-Control-Allow-Origin") == ORIGIN["Origin"]
    assert world.request("/v1/admin/x", "tk_good", **ORIGIN).status == 200


def test_a_path_that_is_not_listed_is_not_found_with_or_without_a_key(
    own: KeyProtectedShim,
) -> None:
    assert own.request("/other").status == 404
    assert own.request("/other", "tk_good").status == 404
    assert own.check.received == []


@pytest.mark.spec("29.14")
def test_chat_completions_need_the_key_where_nothing_is_listed(own: KeyProtectedShim) -> None:
    assert own.request("/v1/chat/completions").status == 401
    assert own.request("/v1/models").status == 200


def test_an_accepted_api_key_is_cached_and_a_refusal_is_not(own: KeyProtectedShim) -> None:
    for _ in range(3):
        assert own.request("/v1/chat/completions", "tk_capped").status == 402
    assert own.check.times("tk_capped") == 3
    own.check.responses["tk_capped"] = Reply(200)
    assert own.request("/v1/chat/completions", "tk_capped").status == 200
    own.check.responses["tk_capped"] = Reply(401)
    until_sync(
        lambda: own.request("/v1/chat/completions", "tk_capped").status == 401,
        what="the expiry of a cached response",
    )


@pytest.mark.parametrize("broken", [True, False])
def test_known_api_keys_stay_valid_while_the_api_is_unavailable(
    own: KeyProtectedShim, *, broken: bool
) -> None:
    assert own.request("/v1/chat/completions", "tk_good").status == 200
    if broken:
        own.check.broken = True
    else:
        own.check.stop()

    def it_noticed() -> bool:
        own.request("/v1/chat/completions", "tk_new")
        return "cannot be reached" in own.gate.log

    until_sync(it_noticed, within=60, what="the gate's report about the API")
    assert own.request("/v1/chat/completions", "tk_good").status == 200
    response = own.request("/v1/chat/completions", "tk_new")
    assert (response.status, response.data["error"]["type"]) == (503, "server_error")
    assert response.header("Retry-After") == "1"
    assert own.request("/open").status == 200


def test_a_key_check_without_response_times_out(own: KeyProtectedShim) -> None:
    own.check.go_on.clear()
    response = own.request("/v1/chat/completions", "tk_good")
    assert (response.status, response.data["error"]["type"]) == (503, "server_error")


def test_a_dead_gate_closes_only_the_paths_that_need_it(own: KeyProtectedShim) -> None:
    own.gate.kill()
    response = own.request("/v1/chat/completions", "tk_good", **ORIGIN)
    assert (response.status, response.data["error"]["type"]) == (503, "server_error")
    assert response.header("Retry-After") == "1"
    assert response.header("Access-Control-Allow-Origin") == ORIGIN["Origin"]
    assert own.request("/open").status == 200
    own.gate.start()
    assert own.request("/v1/chat/completions", "tk_good").status == 200


def test_an_unavailable_upstream_is_reported_behind_the_gate_too(own: KeyProtectedShim) -> None:
    own.shim.upstream.stop()
    response = own.request("/v1/chat/completions", "tk_good")
    assert (response.status, response.data["error"]["type"]) == (502, "server_error")


def test_no_log_contains_what_a_client_sent(world: KeyProtectedShim) -> None:
    with pytest.raises(http.client.IncompleteRead):
        world.request("/cut?word=tk_in_query", "tk_good", Cookie="word=tk_in_cookie")
    world.request("/v1/admin/tk_in_path", "tk_other")
    until_sync(lambda: "aborting with incomplete response" in world.shim.log, what="a line")
    assert "tk_" not in world.shim.log + world.gate.log
    assert "/cut" not in world.shim.log
