"""Which requests the shim forwards, tested with the real Caddy."""

import contextlib
import json
import tempfile
from pathlib import Path

import pytest
from cryptography import x509

from tests.support.servers.shim import HOSTNAME, RunningShim, running_shim

NOT_FOUND = {"error": {"message": "Not found.", "type": "invalid_request_error"}}


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/?q=1",
        "/exact",
        "/exact?a=/../b",
        "/%65xact",
        "/v1/user/",
        "/v1/user/1/2",
        "/v1/user/a%2Fb",
        "/v1/user//x",
        "/v1/user/...",
        "/v1/chat",
        "/v1/chat/x?y",
        "/lit*eral",
        "/%7Bid%7D",
    ],
)
def test_listed_path_reaches_the_upstream_unchanged(shim: RunningShim, target: str) -> None:
    response = shim.request(target)
    assert response.status == 200
    assert response.data["target"] == target


@pytest.mark.spec("3.4", "29.6", "46.3", "46.9")
@pytest.mark.attack("hidden-path")
@pytest.mark.parametrize(
    "target",
    [
        "/exact/",
        "/Exact",
        "/v1/user",
        "/v1/chatty",
        "/v1/chat%2Fx",
        "/literal",
        "/lit-x-eral",
        "//",
        "//exact",
        "/other",
        "/id",
        "/v1/user/../../admin",
        "/v1/user/%2e%2e/%2E%2E/admin",
        "/v1/user/..%2f..%2fadmin",
        "/v1/user/.%2e/x",
        "/v1/user/..%5c..%5cadmin",
        "/v1/user/..\\..\\admin",
        "/v1/user/..;/admin",
        "/v1/user/./x",
        "/v1/user/x/..",
        "/v1/user/..?x",
        "/admin/%2e%2e/exact",
        "*",
    ],
)
def test_any_other_path_is_not_found(shim: RunningShim, target: str) -> None:
    response = shim.request(target)
    assert (response.status, response.data) == (404, NOT_FOUND)
    assert response.header("Content-Type") == "application/json"


@pytest.mark.attack("absolute-target")
@pytest.mark.parametrize("target", ["*", "x:y", "x:v1/chat"])
def test_a_target_that_is_not_a_path_is_not_forwarded_when_all_are_listed(
    open_shim: RunningShim, target: str
) -> None:
    before = len(open_shim.upstream.targets)
    assert open_shim.request(target).status in (400, 404)
    open_shim.request(target, method="OPTIONS")
    assert len(open_shim.upstream.targets) == before


def test_all_paths_are_forwarded_when_all_are_listed(open_shim: RunningShim) -> None:
    for target in ("/", "/a/../b", "/%2e%2e/x", "/deep/er?x"):
        assert open_shim.request(target).data["target"] == target


LIES = {
    "Forwarded": "host=evil",
    "X-Forwarded-Host": "evil",
    "X-Forwarded-For": "192.0.2.66",
    "X-Forwarded-Proto": "evil",
    "X-Forwarded-Port": "evil",
    "X-Forwarded-Prefix": "/evil",
    "X-Forwarded-User": "evil",
    "X_Forwarded_Host": "evil",
    "X-Forwarded_For": "evil",
    "X-Original-URL": "/evil",
    "X_Original_URL": "/evil",
    "X-Rewrite-URL": "/evil",
    "X-Real-IP": "192.0.2.66",
    "X_Real_IP": "192.0.2.66",
}


@pytest.mark.spec("29.11")
def test_the_upstream_receives_the_original_host_and_no_forged_headers(shim: RunningShim) -> None:
    response = shim.request("/exact", headers={**LIES, "X-Own": "kept"}, source="127.0.0.2")
    headers = response.data["headers"]
    assert headers["X-Forwarded-Host"] == HOSTNAME
    assert headers["Forwarded"] == f'host="{HOSTNAME}";proto=https'
    assert headers["X-Forwarded-Proto"] == "https"
    assert headers["X-Forwarded-For"] == "127.0.0.2"
    assert headers["X-Own"] == "kept"
    assert "evil" not in str(headers)
    assert "192.0.2.66" not in str(headers)


def test_the_authorization_header_of_an_open_path_is_forwarded(shim: RunningShim) -> None:
    response = shim.request("/exact", headers={"Authorization": "Basic dTpw"})
    assert response.data["headers"]["Authorization"] == "Basic dTpw"


@pytest.mark.spec("29.12")
def test_an_unavailable_upstream_is_reported() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="shim") as folder,
        running_shim(Path(folder)) as shim,
    ):
        shim.upstream.stop()
        response = shim.request("/exact", headers={"Origin": "https://app.example"})
    assert response.status == 502
    assert response.data["error"]["type"] == "server_error"
    assert response.data["error"]["message"]
    assert response.header("Access-Control-Allow-Origin") == "https://app.example"


@pytest.mark.spec("29.13")
def test_server_sent_events_are_not_buffered(shim: RunningShim) -> None:
    with contextlib.closing(shim.connect()) as secure:
        secure.sendall(f"GET /stream HTTP/1.1\r\nHost: {HOSTNAME}\r\n\r\n".encode())
        seen = b""
        while b"data: first" not in seen:
            seen += secure.recv(4096)
        assert b"data: second" not in seen
        shim.upstream.go_on.set()
        while b"data: second" not in seen:
            piece = secure.recv(4096)
            assert piece, seen
            seen += piece


@pytest.mark.spec("29.13")
def test_web_sockets_are_forwarded(shim: RunningShim) -> None:
    with contextlib.closing(shim.connect()) as secure:
        secure.sendall(
            f"GET /ws HTTP/1.1\r\nHost: {HOSTNAME}\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        seen = b""
        while b"\r\n\r\n" not in seen:
            seen += secure.recv(4096)
        assert seen.startswith(b"HTTP/1.1 101 ")
        secure.sendall(b"ping")
        assert secure.recv(4) == b"ping"


@pytest.mark.parametrize("asked", [HOSTNAME, None])
def test_the_certificate_covers_the_host_name(shim: RunningShim, asked: str | None) -> None:
    with contextlib.closing(shim.connect(asked)) as secure:
        der = secure.getpeercert(binary_form=True)
    assert der is not None
    names = x509.load_der_x509_certificate(der).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == [HOSTNAME]


def test_errors_are_json_without_escapes(shim: RunningShim) -> None:
    assert json.loads(shim.request("/other").body) == NOT_FOUND
    assert b"\\" not in shim.request("/other").body
