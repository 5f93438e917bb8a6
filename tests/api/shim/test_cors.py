"""CORS of the shim, tested with the real Caddy."""

import tempfile
from pathlib import Path

import pytest

from tests.support.servers.shim import RunningShim, running_shim

REFUSED = {"error": {"message": "CORS origin not allowed.", "type": "invalid_request_error"}}
ORIGIN = {"Origin": "https://app.example"}
METHODS = {"GET", "PUT", "POST", "HEAD", "DELETE", "OPTIONS", "PATCH"}


def test_without_origin_no_cors_header_is_added(shim: RunningShim) -> None:
    response = shim.request("/exact")
    assert response.status == 200
    assert response.header("Access-Control-Allow-Origin") is None
    assert response.header("Vary") is None


@pytest.mark.spec("29.9")
def test_a_listed_origin_is_echoed(shim: RunningShim) -> None:
    response = shim.request("/exact", headers=ORIGIN)
    assert response.status == 200
    assert response.header("Access-Control-Allow-Origin") == "https://app.example"
    assert response.header("Access-Control-Allow-Credentials") == "true"
    assert response.header("Vary") == "Origin"
    methods = response.header("Access-Control-Allow-Methods") or ""
    assert set(methods.split(", ")) == METHODS


@pytest.mark.spec("29.8", "46.4")
@pytest.mark.parametrize(
    "origin",
    ["https://app.example.evil", "http://app.example", "https://APP.example", "null", "",
     "https://app.example/", "https://other.example"],
)  # fmt: skip
def test_an_unlisted_origin_is_refused(shim: RunningShim, origin: str) -> None:
    response = shim.request("/exact", headers={"Origin": origin})
    assert (response.status, response.data) == (403, REFUSED)


@pytest.mark.spec("29.10")
@pytest.mark.parametrize("target", ["/exact", "/not-listed"])
def test_a_preflight_is_answered_and_not_forwarded(shim: RunningShim, target: str) -> None:
    wanted = {"Access-Control-Request-Headers": "authorization,x-test"}
    response = shim.request(target, method="OPTIONS", headers=ORIGIN | wanted)
    assert (response.status, response.body) == (204, b"")
    assert response.header("Access-Control-Allow-Headers") == "authorization,x-test"
    assert response.header("Access-Control-Allow-Origin") == "https://app.example"


def test_options_without_origin_is_forwarded(shim: RunningShim) -> None:
    assert shim.request("/exact", method="OPTIONS").data["method"] == "OPTIONS"


@pytest.mark.spec("29.7")
def test_cors_is_checked_before_the_path(shim: RunningShim) -> None:
    assert shim.request("/not-listed", headers={"Origin": "https://evil.example"}).status == 403
    listed = shim.request("/not-listed", headers=ORIGIN)
    assert listed.status == 404
    assert listed.header("Access-Control-Allow-Origin") == "https://app.example"


@pytest.mark.spec("29.10")
def test_cors_headers_of_the_upstream_are_replaced(shim: RunningShim) -> None:
    shim.upstream.headers = {
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Expose-Headers": "X-Secret",
        "Vary": "Accept",
    }
    try:
        plain, browser = shim.request("/exact"), shim.request("/exact", headers=ORIGIN)
    finally:
        shim.upstream.headers = {}
    assert plain.header("Access-Control-Allow-Origin") is None
    assert plain.header("Access-Control-Expose-Headers") is None
    assert browser.header("Access-Control-Allow-Origin") == "https://app.example"
    assert set((browser.header("Vary") or "").split(", ")) == {"Origin", "Accept"}


def test_every_origin_is_allowed_where_the_file_lists_none(open_shim: RunningShim) -> None:
    """With credentials, as spec 29.9 requires; a list of origins is the remedy."""
    response = open_shim.request("/x", headers={"Origin": "https://any.example"})
    assert response.status == 200
    assert response.header("Access-Control-Allow-Origin") == "https://any.example"
    assert response.header("Access-Control-Allow-Credentials") == "true"


@pytest.mark.parametrize(
    ("origins", "status"), [(("*",), 200), ((), 403), (("https://a.example",), 403)]
)
def test_a_wildcard_and_an_empty_list_of_origins(origins: tuple[str, ...], status: int) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="shim") as folder,
        running_shim(Path(folder), origins=origins) as running,
    ):
        response = running.request("/x", headers={"Origin": "https://any.example"})
        assert response.status == status
        assert running.request("/x").status == 200
